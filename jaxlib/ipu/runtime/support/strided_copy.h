// Copies between two arrays of the same shape with different strides.
//
// Byte strides may be negative or zero (broadcast), and no alignment is
// assumed. Source and destination must not overlap.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ipu {

// Byte strides of a dense row-major array.
std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape,
                                     size_t element_bytes);

void StridedCopy(std::span<const int64_t> shape, size_t element_bytes,
                 const void* source, std::span<const int64_t> source_strides,
                 void* destination,
                 std::span<const int64_t> destination_strides);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_STRIDED_COPY_H_
