// Dimensions of a tile's elements in its storage order
// (contiguous_destinations.h).

#ifndef JAXLIB_IPU_RUNTIME_MOVES_TILE_MEMORY_H_
#define JAXLIB_IPU_RUNTIME_MOVES_TILE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/moves/far_dims.h"
#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// An interval of indices that begins or ends within a row of the dimensions
// that it spans.
struct TileTail {
  FarDims dims;    // Innermost first.
  int64_t length;  // Maximum number of indices in the interval.
  int64_t grid;    // The interval begins at a multiple of this number.
};

// A tile's elements, in its storage order.
struct TileMemory {
  FarDims held;  // Dimensions that the tile holds entirely, innermost first.
  // The interval that it holds of the dimensions outside of these, if it is not
  // simply another dimension.
  std::optional<TileTail> tail;
  int64_t times = 1;  // How often the tile holds all of that.
  FarDims rest;  // Dimensions along which tiles, or the repetitions, differ.
};

// Splits a tile's elements into dimensions. `first` is the first accessed
// element, `stepped` are the dimensions, smallest stride first, and `elements`
// is the maximum number of elements on a tile.
TileMemory MemoryOf(const std::vector<Factor>& factors, int64_t first,
                    const std::vector<Stepped>& stepped, int64_t elements);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_TILE_MEMORY_H_
