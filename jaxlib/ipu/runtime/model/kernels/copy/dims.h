// Loop nests over two strided arrays, as copies use them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_DIMS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_DIMS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {

// One loop: its trip count and its strides, in bytes, in both arrays.
struct Dim {
  int64_t extent;
  int64_t source;
  int64_t destination;
};

// A limit: a loop nest has at most two more loops than its shape has
// dimensions.
inline constexpr size_t kMostDims = program::kHighestRank + 2;

// A loop nest, outermost loop first, and the offsets of its first items.
struct Nest {
  std::vector<Dim> dims;
  int64_t source_offset = 0;
  int64_t destination_offset = 0;
};

// The shortest loop nest over the same pairs of items, in the order of the
// destination's memory. Drops dimensions of extent 1, reverses loops with a
// negative destination stride, sorts loops by destination stride and merges
// those that are contiguous in both arrays. Strides are in items.
Nest MakeNest(int64_t item_size, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& destination_strides);

// Calls body(source, destination) for all iterations of the first `count`
// loops.
template <typename Source, typename Body>
void ForEachIndex(const Dim* dims, size_t count, Source* source,
                  char* destination, const Body& body) {
  std::array<int64_t, kMostDims> index;
  std::fill_n(index.begin(), count, 0);
  for (;;) {
    body(source, destination);
    // Advance to the next index, innermost loop first.
    for (size_t d = count;;) {
      if (d == 0) return;
      --d;
      source += dims[d].source;
      destination += dims[d].destination;
      if (++index[d] < dims[d].extent) break;
      source -= dims[d].extent * dims[d].source;
      destination -= dims[d].extent * dims[d].destination;
      index[d] = 0;
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_DIMS_H_
