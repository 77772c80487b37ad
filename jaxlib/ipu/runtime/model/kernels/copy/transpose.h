// Transposes a matrix from one place in memory to another.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_

#include <cstdint>

namespace ipu::model::IPU_SIMD_NS {

// destination[i][j] = source[j][i] for i < rows, j < columns. Items have
// `item_size` bytes (1, 2, 4, 8 or 16) and are contiguous within the rows of
// both matrices; the row strides are in bytes. The matrices must not overlap.
void Transpose(int64_t item_size, int64_t rows, int64_t columns,
               const char* source, int64_t source_step, char* destination,
               int64_t destination_step);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_
