// A strided iterator: a tensor's elements in the row-major order of a flat
// iteration space.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// Gather may write up to this many bytes beyond the requested elements.
inline constexpr size_t kSlackBytes = 64;

class ShortRows;

class StridedIterator {
 public:
  StridedIterator(const std::vector<int64_t>& shape, const Operand& operand);

  // True if all indices have the same element.
  bool uniform() const;
  // True if the elements are contiguous and in order.
  bool dense() const;
  // The distance in elements of consecutive indices' elements, if it is the
  // same for all; otherwise 0.
  int64_t spacing() const;
  // The element of index i + group() is group_step() elements after that of i,
  // for all i.
  int64_t group() const;
  int64_t group_step() const;
  // How many elements an index's element is after the first one's. Goes on
  // beyond the last index.
  int64_t PlaceOf(int64_t index) const;
  // The number of consecutive indices with the same element: the element
  // changes only at multiples of this. 1 if it changes at every index.
  int64_t run() const;
  // n if the iterator repeats n contiguous elements, such as a row that is
  // added to all rows of a matrix; otherwise 0.
  int64_t period() const;
  // The same for n elements wherever they are.
  int64_t repeated() const;
  // n if the iterator consists of several rows of n contiguous elements;
  // otherwise 0.
  int64_t row() const;

  // Whether the iterator runs along the rows of one or many column-major
  // matrices, and the extents of these.
  bool transposed() const;
  int64_t columns() const { return dimensions_.back().extent; }
  int64_t rows() const { return dimensions_[dimensions_.size() - 2].extent; }

  // Gathers rows of a transposed iterator into a dense block, starting with the
  // row at flat index `begin`. All rows must belong to the same matrix.
  void GatherRows(const char* data, int64_t begin, int64_t rows,
                  char* to) const;

  uint32_t item_size() const { return item_size_; }
  uint32_t base() const { return base_; }
  int64_t offset() const { return offset_; }
  char* Data(char* const* bases) const { return bases[base_] + offset_; }
  // The address of the element at a flat index.
  const char* At(char* const* bases, int64_t index) const;

  // Makes tables that speed up Gather, or Scatter, where rows are short.
  void PrepareGather() { Prepare(/*gather=*/true); }
  void PrepareScatter() { Prepare(/*gather=*/false); }

  // Copies `count` elements starting at flat index `begin` into a dense block.
  void Gather(const char* data, int64_t begin, int64_t count, char* to) const;
  // Copies a dense block to `count` elements.
  void Scatter(char* data, int64_t begin, int64_t count,
               const char* from) const;

 private:
  // Dimensions, outermost first; those that are contiguous are merged.
  struct Dimension {
    int64_t extent;
    int64_t stride;  // elements
  };
  // The offset of flat index `begin`, and its index along each dimension.
  int64_t Locate(int64_t begin, int64_t* index) const;
  void Prepare(bool gather);
  template <typename T, bool kGather>
  void Move(T* data, int64_t begin, int64_t count, T* block) const;
  template <bool kGather>
  void MoveItems(char* data, int64_t begin, int64_t count, char* block) const;

  std::vector<Dimension> dimensions_;
  std::shared_ptr<const ShortRows> short_rows_;  // null if rows are not short
  uint32_t base_;
  int64_t offset_;
  uint32_t item_size_;
};

// Fills `to` with the index along one dimension of the iteration space.
template <typename T>
void FillIota(int64_t inner, int64_t extent, int64_t begin, int64_t count,
              T* to);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_STRIDED_ITERATOR_H_
