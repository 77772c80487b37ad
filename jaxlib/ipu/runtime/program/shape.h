// Shapes and strided views, and whether they can be trusted.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

// No tensor comes near these; sums of a few products of what stays below them
// fit 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 48;
inline constexpr uint64_t kMostBytes = uint64_t{1} << 48;

// No valid shape has more dimensions.
inline constexpr size_t kHighestRank = 64;

// The number of elements of a shape; -1 if it is no shape.
int64_t Count(const std::vector<int64_t>& shape);

// Whether all of a view lies in [0, size).
bool Inside(const std::vector<int64_t>& shape, int64_t offset,
            const std::vector<int64_t>& strides, int64_t size);

// Whether different indices are different elements, by strides that nest.
bool Apart(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides);

// Whether the strides are those of row-major order without gaps.
bool Dense(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides);

// The bytes of a tensor's elements, laid out densely. Only for tensors of valid
// shape and type.
int64_t Bytes(const Tensor& tensor);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_SHAPE_H_
