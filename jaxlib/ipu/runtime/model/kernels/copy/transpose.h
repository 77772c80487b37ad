// Transposes a matrix in memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_

#include <cstdint>

namespace ipu::model::IPU_SIMD_NS {

// destination[i][j] = source[j][i] for i < rows, j < columns. Items of
// `item_size` bytes (1, 2, 4, 8 or 16) lie next to each other in the rows of
// both; the steps between rows are in bytes.
void Transpose(int64_t item_size, int64_t rows, int64_t columns,
               const char* source, int64_t source_step, char* destination,
               int64_t destination_step);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_
