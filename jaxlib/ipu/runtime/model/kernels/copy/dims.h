// Loop nests over two strided arrays.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_DIMS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_DIMS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {

// One loop: how often, and the bytes to step each time in either array.
struct Dim {
  int64_t extent;
  int64_t source;
  int64_t destination;
};

// A loop nest may need two more loops than its shape has dimensions.
inline constexpr size_t kMostDims = program::kHighestRank + 2;

// A loop nest, outermost first, and where it starts.
struct Nest {
  std::vector<Dim> dims;
  int64_t source_offset = 0;
  int64_t destination_offset = 0;
};

// The shortest nest that visits the same pairs of items, in another order if
// that follows the destination's memory: without dimensions of one item or
// backward steps in the destination, sorted by the destination's steps, with
// joined dimensions where both arrays allow it. Strides count items.
Nest MakeNest(int64_t item_size, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& destination_strides);

// Calls body(source, destination) for all indices of the first `count` loops.
template <typename Source, typename Body>
void ForEachIndex(const Dim* dims, size_t count, Source* source,
                  char* destination, const Body& body) {
  std::array<int64_t, kMostDims> index;
  std::fill_n(index.begin(), count, 0);
  for (;;) {
    body(source, destination);
    // Counts like an odometer.
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
