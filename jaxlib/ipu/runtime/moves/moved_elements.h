// Counts the elements that each tile sends, receives and keeps in a move.
//
// A move reads one view of a tensor and writes another: two affine accesses of
// one iteration space. At each end the index splits into digits, one for each
// factor of that end's mapping, and a tile holds an interval of every digit.
// Dimensions that no factor cuts together are independent. So every count is a
// product over groups of dimensions, and each of the products' terms is a
// closed form. Where an access carries from one digit into the next, and the
// factors cannot be joined, the counts are upper bounds: everything that a tile
// holds is taken to move.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_MOVED_ELEMENTS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_MOVED_ELEMENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/moves/layout.h"
#include "jaxlib/ipu/runtime/moves/per_tile.h"

namespace ipu::moves {

// What is counted for each tile: elements that it needs but does not hold, that
// it holds and another tile needs, and that it both needs and holds.
inline constexpr int kReceived = 0, kSent = 1, kKept = 2, kMoveFigures = 3;

// Each tile's elements at one end as lines, the product of inner and outer
// indices: the numbers of indices along the inner dimensions, which include the
// one of stride 1, and along all others; and of these, of those of elements
// that stay on the tile.
struct Lines {
  PerTile inner = 0, inner_kept = 0, outer = 0, outer_kept = 0;
  // Whether a tile has any lines, and any elements that stay on it; otherwise
  // its outer indices do not count.
  std::vector<uint8_t> any, any_kept;

  // The most inner indices of a tile.
  int64_t Longest() const;
  // Maximum number of segments that change tile, if each outer index has so
  // many segments.
  int64_t Crossing(int64_t segments) const;
};

struct MovedLines {
  // Elements along the inner dimensions that are contiguous at both ends; 0 if
  // there are none, and then there are no lines.
  int64_t length = 0;
  Lines arriving, leaving;  // Of the destination, and of the source.
};

// Writes the figures of tiles 0 to `tiles` - 1 to `figures`
// [kMoveFigures][tiles]. If a dimension is empty, nothing moves.
//
// `once` says that a tile that needs an element in several places receives it
// only once.
MovedLines CountMovedElements(const MoveEnd& source, const MoveEnd& destination,
                              const Ints& shape, bool once, size_t tiles,
                              int64_t* figures);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_MOVED_ELEMENTS_H_
