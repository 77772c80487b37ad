// How many bytes of an array each tile holds between programs.
//
// Most arrays have the default tile mapping, which their shape and type
// determine (plan/default_layout.py); others have the mapping of a program
// (array_layouts.h). Either is a grid in closed form (layout.py), of which the
// first tile holds most. No default mapping puts more on any tile than on
// tile 0.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_ARRAY_TILES_H_
#define JAXLIB_IPU_RUNTIME_PJRT_ARRAY_TILES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

// Under the default mapping, the bytes of an array on its fullest tile.
int64_t FullestTileBytes(const TensorInfo& info, int64_t num_tiles,
                         int64_t data_path_bytes);

// Adds to each tile `times` the bytes that it holds of an array. Null layout:
// the default one.
void AddTileBytes(const TensorInfo& info, const ArrayLayout* layout,
                  int64_t data_path_bytes, int64_t times,
                  std::span<int64_t> tiles);

}  // namespace ipu

// The bytes of a row-major array on each of `num_tiles` tiles, for tests.
// Returns those of the fullest one.
extern "C" __attribute__((visibility("default"))) int64_t ipu_array_tile_bytes(
    int dtype, const int64_t* shape, size_t rank, int64_t num_tiles,
    int64_t data_path_bytes, int64_t* tile_bytes);

#endif  // JAXLIB_IPU_RUNTIME_PJRT_ARRAY_TILES_H_
