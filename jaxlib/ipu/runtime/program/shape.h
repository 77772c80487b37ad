// Checks of shapes and strided views from untrusted programs.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

// Each is a limit far above any tensor's size. Sums of a few products of
// smaller numbers fit into 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 48;
inline constexpr uint64_t kMostBytes = uint64_t{1} << 48;

// The number of elements of a shape, or -1 if the shape is invalid.
int64_t Count(const std::vector<int64_t>& shape);

// Whether all elements of a view are in [0, size).
bool Inside(const std::vector<int64_t>& shape, int64_t offset,
            const std::vector<int64_t>& strides, int64_t size);

// Whether different indices are known to be different elements, because each
// stride exceeds the reach of all smaller ones.
bool Apart(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides);

// Whether the strides are dense and row-major.
bool Dense(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides);

// The bytes of a tensor when stored densely. Requires a valid shape and type.
int64_t Bytes(const Tensor& tensor);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_
