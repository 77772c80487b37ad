// Dimensions of a move's elements, with where they lead at the far end
// (contiguous_destinations.h).

#ifndef JAXLIB_IPU_RUNTIME_MOVES_FAR_DIMS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_FAR_DIMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// A dimension of a tile's elements.
struct FarDim {
  int64_t extent;
  int64_t far;  // The stride at the far end, in elements.
  // By how many elements of the far end the dimensions inside the last index
  // reach less far than those inside the others.
  int64_t shorter = 0;
};

using FarDims = std::vector<FarDim>;

// A dimension with its stride at the near end.
struct Stepped {
  int64_t stride;
  FarDim dim;
};

// The number of elements.
int64_t Size(std::span<const FarDim> dims);

// Dimensions from `first` on.
FarDims From(const FarDims& dims, size_t first);

// All dimensions of several lists, in order.
template <typename... Parts>
FarDims Join(const Parts&... parts) {
  FarDims all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

// Joins adjacent dimensions that are one longer dimension at both ends.
std::vector<Stepped> JoinDims(const std::vector<Stepped>& stepped);

// Splits each dimension that carries from one factor of the far end into the
// next, if its extent can be divided there.
std::vector<Stepped> SplitDims(std::vector<Stepped> stepped,
                               const std::vector<Factor>& factors);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_FAR_DIMS_H_
