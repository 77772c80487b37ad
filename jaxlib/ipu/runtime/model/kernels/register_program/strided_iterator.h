// A tensor's elements in the order of a flat (row-major) iteration space.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// Gather may write this much beyond what it was asked for.
inline constexpr size_t kSlackBytes = 64;

class StridedIterator {
 public:
  StridedIterator(const std::vector<int64_t>& shape, const Operand& operand);

  // The same element everywhere.
  bool uniform() const;
  // Every element once, one after the other.
  bool dense() const;
  // How many elements in a row are one and the same: the walk changes only at
  // multiples of this. 1 if it changes everywhere.
  int64_t run() const;
  // n if the first n elements come one after the other and then again and
  // again, as those of a row that is added to all rows of a matrix; else 0.
  int64_t period() const;
  // n if in each of several rows n elements come one after the other; else 0.
  int64_t row() const;

  // Whether the walk goes along the rows of a matrix that lies in memory column
  // after column (one or many such matrices), and how many columns its rows
  // have.
  bool transposed() const;
  int64_t columns() const { return dimensions_.back().extent; }
  int64_t rows() const { return dimensions_[dimensions_.size() - 2].extent; }

  // Lays out rows of a transposed walk one after the other, from the row that
  // begins with flat index `begin` on; they are all of one matrix.
  void GatherRows(const char* data, int64_t begin, int64_t rows,
                  char* to) const;

  uint32_t item_size() const { return item_size_; }
  uint32_t base() const { return base_; }
  int64_t offset() const { return offset_; }
  char* Data(char* const* bases) const { return bases[base_] + offset_; }
  // The element at a flat index.
  const char* At(char* const* bases, int64_t index) const;

  // Copies `count` elements from flat index `begin` on into a dense block.
  void Gather(const char* data, int64_t begin, int64_t count, char* to) const;
  // And back.
  void Scatter(char* data, int64_t begin, int64_t count,
               const char* from) const;

 private:
  // Dimensions, outermost first, without those that the next one continues.
  struct Dimension {
    int64_t extent;
    int64_t stride;  // elements
  };
  // Where flat index `begin` is, and its index along each dimension.
  int64_t Locate(int64_t begin, int64_t* index) const;
  template <typename T, bool kGather>
  void Move(T* data, int64_t begin, int64_t count, T* block) const;
  template <bool kGather>
  void MoveItems(char* data, int64_t begin, int64_t count, char* block) const;

  std::vector<Dimension> dimensions_;
  uint32_t base_;
  int64_t offset_;
  uint32_t item_size_;
};

// The index along one dimension of the iteration space, as T.
template <typename T>
void FillIota(int64_t inner, int64_t extent, int64_t begin, int64_t count,
              T* to);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_
