// Copies between two arrays of the same shape that lie differently in memory.
//
// In: any byte strides, also negative and zero (a broadcast). No alignment is
// assumed. The destination must not overlap the source.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ipu {

// Byte strides of a dense array whose last dimension varies fastest.
std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape,
                                     size_t element_bytes);

void StridedCopy(std::span<const int64_t> shape, size_t element_bytes,
                 const void* source, std::span<const int64_t> source_strides,
                 void* destination,
                 std::span<const int64_t> destination_strides);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_
