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

// Rows or columns in groups of equal size; `inner` and `outer` are the bytes
// from one to the next within a group, and from group to group.
struct Groups {
  int64_t number, size;
  int64_t outer, inner;

  int64_t count() const { return number * size; }
  int64_t At(int64_t i) const { return i / size * outer + i % size * inner; }
};

// The same where neither the rows of the destination nor those of the source
// (`columns`) have to be evenly spaced, for groups of fewer items than a vector
// has lanes: complex numbers whose real and imaginary parts are in different
// planes, pixels of a few colours.
void TransposeGroups(int64_t item_size, const Groups& rows,
                     const Groups& columns, const char* source,
                     char* destination);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_TRANSPOSE_H_
