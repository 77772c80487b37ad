// What the code of a move depends on: the tiles that send and receive most.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_FULLEST_ENDS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_FULLEST_ENDS_H_

#include <cstddef>
#include <cstdint>

#include "jaxlib/ipu/runtime/moves/layout.h"
#include "jaxlib/ipu/runtime/moves/moved_elements.h"

namespace ipu::moves {

// The tile that sends or receives most: its numbers of segments and of peers,
// and of the elements that it sends or receives; and how many it holds at that
// end.
struct FullestEnd {
  int64_t segments = 0, peers = 0, moved = 0, elements = 0;
};

struct FullestEnds {
  FullestEnd sender, receiver;
  int64_t whole = 1;  // Whether all segments begin and end at words.
  // Whether a receiver's contiguous blocks begin and end at words.
  int64_t even = 1;
  int64_t keeps = 0;  // Whether every tile already holds some of what it needs.
  // Of the tile that keeps most: segments, or a bound, and elements.
  int64_t staying_segments = 0, staying = 0;
};

// The ends of a move of which CountMovedElements has counted `lines` and
// `figures`. Nobody sends or receives if nothing changes its tile, and nothing
// stays if that is not counted.
FullestEnds FindFullestEnds(const MoveEnd& source, const MoveEnd& destination,
                            const Ints& shape, int64_t item_bytes, size_t tiles,
                            const MovedLines& lines, const int64_t* figures);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_FULLEST_ENDS_H_
