// Counts the segments of a move, and the peers of its tiles.
//
// A segment is contiguous in the memories of both its sender and its receiver,
// so it can be one message. A tile's peers are the tiles at the other end that
// it exchanges with. Both are counted for the fullest tile at either end, by
// closed forms of the mappings' blocks and of the accesses' strides; the
// numbers are upper bounds for all tiles.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_SEGMENTS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_SEGMENTS_H_

#include <array>
#include <cstdint>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// Figures of the fullest tile at one end of a move, bounds for all tiles: the
// fields of `SegmentCounts` (moves/segments.py).
struct SegmentCounts {
  int64_t segments = 0, peers = 0, length = 1, per_block = 1, block = 1,
          whole = 1, elements = 0, even = 1;
};

// The figures of both ends of a move, whichever of them sends.
std::array<SegmentCounts, 2> CountSegments(MoveEnd one, MoveEnd other,
                                           Ints shape, int64_t item_bytes);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_SEGMENTS_H_
