// Counts the contiguous destinations of a move: intervals of a receiver's
// memory whose elements all come from one peer, where they may have any order.
//
// A segment (segments.h) is contiguous in both tiles' memories, a contiguous
// destination in that of the receiver. A reversed or transposed view has as
// many segments as elements, but often a single contiguous destination for each
// peer. The same is counted for senders: intervals whose elements all go to one
// peer. Both are called intervals below, the tile whose memory they are in the
// near end, its peers the far end.
//
// A tile's elements are split into dimensions in the tile's storage order. The
// innermost dimensions along which the peer never changes form a box. The next
// dimension leads from box to box, and to another peer where it crosses the end
// of one of the far end's blocks. Each index along the dimensions outside that
// one is assumed to begin a new interval.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_CONTIGUOUS_DESTINATIONS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_CONTIGUOUS_DESTINATIONS_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

struct ContiguousDestinations {
  int64_t count;  // The maximum number of intervals of a tile.
  // Whether they begin and end at words, provided that the tile's contiguous
  // blocks do.
  bool even;
};

// Counts the intervals of a tile at the end `near`: the receivers' end, for
// contiguous destinations; the senders' end, for the intervals that go to one
// peer. `far` is the end of their peers, `elements` the number of elements on
// the fullest tile, or an upper bound, and `grain` the elements of a word.
// Where intervals cannot be counted, each element is taken for one.
ContiguousDestinations CountContiguousDestinations(const MoveEnd& near,
                                                   const MoveEnd& far,
                                                   const Ints& shape,
                                                   int64_t elements,
                                                   int64_t grain);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_CONTIGUOUS_DESTINATIONS_H_
