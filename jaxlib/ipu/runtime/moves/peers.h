// Bounds the number of peers of a tile in a move.
//
// A tile's peers are the tiles that send to it, or to which it sends. The
// bounds are closed forms of the blocks of both mappings and of the strides of
// both accesses.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_PEERS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_PEERS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// The indices of one dimension of the iteration space on a tile at one end;
// bounds for all tiles.
//
// If the same factor also cuts an outer dimension, each index of that one
// begins a row of this one. A tile may then hold the end of one row and the
// beginning of the next.
struct HeldIndices {
  int64_t indices;  // maximum number of indices
  int64_t span;     // maximum distance from the first index to the last,
                    // inclusive
  bool even;        // whether every tile's first index is a multiple of
                    // `indices`
  // Number of intervals of length `span`: 2 if the end of a row and the
  // beginning of the next one are far apart at the other end.
  int64_t intervals = 1;
  // Whether the indices may belong to the ends of two rows.
  bool wraps = false;

  auto operator<=>(const HeldIndices&) const = default;
};

// The indices of dimension d on a tile at the end `near`.
HeldIndices FindHeldIndices(const MoveEnd& near, const MoveEnd& far,
                            const Ints& shape, size_t d);

// The maximum number of a tile's peers, given its indices of each dimension at
// its own end and the other one.
int64_t CountPeers(const std::vector<HeldIndices>& near, const MoveEnd& far,
                   const Ints& shape);

// The factor along which a stride (in elements) steps, and the elements by
// which a step of its digit moves.
std::pair<Factor, int64_t> FactorAt(const Layout& layout, int64_t stride);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_PEERS_H_
