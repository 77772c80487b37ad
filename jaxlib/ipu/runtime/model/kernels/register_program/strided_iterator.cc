#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/copy/transpose.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/short_rows.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Gathers as many of `n` elements with a stride of kFew as fill vectors.
// Returns their number. A block further on is fetched meanwhile, as nothing is
// read while a block is computed.
template <int kFew, typename T>
int64_t GatherSpaced(const T* data, int64_t n, T* block) {
  constexpr int64_t kAhead = 8192;
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>, data += kLanes<T> * kFew) {
    const char* const later = reinterpret_cast<const char*>(data) + kAhead;
    for (int at = 0; at < kFew * kVectorBytes; at += 64) {
      __builtin_prefetch(later + at);
    }
    Store(block + i, LoadStrided<kFew>(data));
  }
  return i;
}

// Copies `n` elements with a stride from memory into a block, or back.
template <typename T, bool kGather>
inline void MoveRun(T* data, int64_t stride, int64_t n, T* block) {
  if constexpr (!kGather) {
    if (stride == 1) {
      std::memcpy(data, block, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) data[i * stride] = block[i];
    }
  } else if (stride == 0) {
    // Short runs are common: store whole vectors, even if the last is mostly
    // unused.
    constexpr int kN = 32 / sizeof(T);
    const auto splat = Splat<Vector<T, kN>>(*data);
    for (int64_t i = 0; i < n; i += kN) Store(block + i, splat);
  } else if (stride == 1 && n >= 16) {
    std::memcpy(block, data, n * sizeof(T));
  } else {
    int64_t i = 0;
    if constexpr (sizeof(T) >= 4) {
      WithFew(stride, [&](auto few) { i = GatherSpaced<few>(data, n, block); });
    }
    for (; i < n; ++i) block[i] = data[i * stride];
  }
}

// Repeats each element n times, where n elements fit into kBytes.
template <typename T, int kBytes>
void RepeatEach(const T* data, int64_t stride, int64_t rows, int64_t n,
                T* block) {
  for (int64_t row = 0; row < rows; ++row) {
    Store(block + row * n, Splat<Vector<T, kBytes / sizeof(T)>>(*data));
    data += stride;
  }
}

// Repeats a row of `n` elements, doubling what has been copied so far.
template <typename T>
void RepeatRow(const T* data, int64_t rows, int64_t stride, int64_t n,
               T* block) {
  for (int64_t i = 0; i < n; ++i) block[i] = data[i * stride];
  for (int64_t done = n; done < rows * n;) {
    const int64_t more = std::min(done, rows * n - done);
    std::memcpy(block + done, block, more * sizeof(T));
    done += more;
  }
}

// MoveRun for `rows` runs.
template <typename T, bool kGather>
void MoveRows(T* data, int64_t row_stride, int64_t rows, int64_t stride,
              int64_t n, T* block) {
  const size_t bytes = n * sizeof(T);
  if (kGather && stride == 0 && bytes <= 32) {
    return bytes <= 16 ? RepeatEach<T, 16>(data, row_stride, rows, n, block)
                       : RepeatEach<T, 32>(data, row_stride, rows, n, block);
  }
  if constexpr (kGather) {
    if (row_stride == 0 && rows > 1) {
      return RepeatRow(data, rows, stride, n, block);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    MoveRun<T, kGather>(data, stride, n, block);
    data += row_stride;
    block += n;
  }
}

// The offset of flat index `begin` in the first `rank` dimensions, and its
// index along each of them.
template <typename Dimensions>
int64_t LocateIn(const Dimensions& dims, size_t rank, int64_t begin,
                 int64_t* index) {
  int64_t at = 0;
  for (size_t d = rank; d-- > 0;) {
    index[d] = begin % dims[d].extent;
    begin /= dims[d].extent;
    at += index[d] * dims[d].stride;
  }
  return at;
}

// Splits a range of elements into rows. Calls part(row, at, n, block) for n
// elements of a row starting at `at`, and whole(first, stride, n, block) for n
// whole rows. The dimensions from `outer` on form rows of `extent` elements.
template <typename Dimensions, typename T, typename Part, typename Whole>
void ForRows(const Dimensions& dims, size_t outer, int64_t extent, T* data,
             int64_t begin, int64_t count, T* block, const Part& part,
             const Whole& whole) {
  int64_t index[program::kHighestRank];
  data += LocateIn(dims, outer, begin / extent, index);
  int64_t at = begin % extent;
  const int64_t stride = outer < 1 ? 0 : dims[outer - 1].stride;
  const int64_t rows = outer < 1 ? 1 : dims[outer - 1].extent;
  int64_t row_at = outer < 1 ? 0 : index[outer - 1];
  while (count > 0) {
    int64_t n = 1;
    int64_t elements = std::min(count, extent - at);
    if (elements < extent) {
      part(data, at, elements, block);
      at = 0;
    } else {
      n = std::min(count / extent, rows - row_at);
      elements = n * extent;
      whole(data, stride, n, block);
    }
    block += elements;
    count -= elements;
    data += n * stride;
    row_at += n;
    if (row_at < rows) continue;
    data -= row_at * stride;
    row_at = 0;
    for (size_t d = outer - 1; outer > 1 && d-- > 0;) {
      data += dims[d].stride;
      if (++index[d] < dims[d].extent) break;
      data -= dims[d].extent * dims[d].stride;
      index[d] = 0;
    }
  }
}

}  // namespace

StridedIterator::StridedIterator(const std::vector<int64_t>& shape,
                                 const Operand& operand)
    : base_(operand.view.base),
      offset_(operand.view.offset),
      item_size_(operand.view.item_size) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const Dimension next{shape[d], operand.Stride(d)};
    if (!dimensions_.empty() &&
        dimensions_.back().stride == next.stride * next.extent) {
      dimensions_.back() = {dimensions_.back().extent * next.extent,
                            next.stride};
    } else {
      dimensions_.push_back(next);
    }
  }
}

bool StridedIterator::uniform() const {
  return dimensions_.empty() ||
         (dimensions_.size() == 1 && dimensions_[0].stride == 0);
}

bool StridedIterator::dense() const {
  return dimensions_.empty() ||
         (dimensions_.size() == 1 && dimensions_[0].stride == 1);
}

int64_t StridedIterator::spacing() const {
  return dimensions_.size() == 1 ? dimensions_[0].stride : 0;
}

int64_t StridedIterator::group() const {
  int64_t elements = 1;
  for (size_t d = 1; d < dimensions_.size(); ++d) {
    elements *= dimensions_[d].extent;
  }
  return elements;
}

int64_t StridedIterator::group_step() const {
  return dimensions_.empty() ? 0 : dimensions_[0].stride;
}

int64_t StridedIterator::run() const {
  return !dimensions_.empty() && dimensions_.back().stride == 0
             ? dimensions_.back().extent
             : 1;
}

int64_t StridedIterator::period() const {
  return dimensions_.size() == 2 && dimensions_[0].stride == 0 &&
                 dimensions_[1].stride == 1
             ? dimensions_[1].extent
             : 0;
}

int64_t StridedIterator::repeated() const {
  return dimensions_.size() == 2 && dimensions_[0].stride == 0
             ? dimensions_[1].extent
             : 0;
}

int64_t StridedIterator::row() const {
  return dimensions_.size() >= 2 && dimensions_.back().stride == 1
             ? dimensions_.back().extent
             : 0;
}

bool StridedIterator::transposed() const {
  const size_t n = dimensions_.size();
  return n >= 2 && dimensions_[n - 2].stride == 1 &&
         dimensions_[n - 1].stride != 0 && dimensions_[n - 1].stride != 1;
}

int64_t StridedIterator::Locate(int64_t begin, int64_t* index) const {
  return LocateIn(dimensions_, dimensions_.size(), begin, index);
}

int64_t StridedIterator::PlaceOf(int64_t index) const {
  int64_t at = 0;
  for (size_t d = dimensions_.size(); d-- > 1;) {  // divides once per dimension
    at += index % dimensions_[d].extent * dimensions_[d].stride;
    index /= dimensions_[d].extent;
  }
  return dimensions_.empty() ? 0 : at + index * dimensions_[0].stride;
}

const char* StridedIterator::At(char* const* bases, int64_t index) const {
  return Data(bases) + PlaceOf(index) * item_size_;
}

void StridedIterator::GatherRows(const char* data, int64_t begin, int64_t rows,
                                 char* to) const {
  int64_t index[program::kHighestRank];
  const int64_t item = item_size_;
  Transpose(item, rows, columns(), data + Locate(begin, index) * item,
            dimensions_.back().stride * item, to, columns() * item);
}

void StridedIterator::Prepare(bool gather) {
  auto rows = std::make_shared<ShortRows>();
  if (rows->Make(dimensions_, item_size_, gather)) short_rows_ = rows;
}

template <typename T, bool kGather>
void StridedIterator::Move(T* data, int64_t begin, int64_t count,
                           T* block) const {
  if (short_rows_ != nullptr) {
    const ShortRows& rows = *short_rows_;
    return ForRows(
        dimensions_, rows.outer(), rows.size(), data, begin, count, block,
        [&](T* row, int64_t at, int64_t n, T* to) {
          rows.MovePart<T, kGather>(row, at, n, to);
        },
        [&](T* first, int64_t, int64_t n, T* to) {
          rows.MoveRows<T, kGather>(first, n, to);
        });
  }
  // Otherwise rows are the last dimension.
  const size_t rank = dimensions_.size();
  const Dimension row = rank < 1 ? Dimension{1, 1} : dimensions_[rank - 1];
  ForRows(
      dimensions_, rank < 1 ? 0 : rank - 1, row.extent, data, begin, count,
      block,
      [&](T* from, int64_t at, int64_t n, T* to) {
        MoveRun<T, kGather>(from + at * row.stride, row.stride, n, to);
      },
      [&](T* first, int64_t stride, int64_t n, T* to) {
        MoveRows<T, kGather>(first, stride, n, row.stride, row.extent, to);
      });
}

template <bool kGather>
void StridedIterator::MoveItems(char* data, int64_t begin, int64_t count,
                                char* block) const {
  WithItem(item_size_, [&]<typename T>(T) {
    Move<T, kGather>(reinterpret_cast<T*>(data), begin, count,
                     reinterpret_cast<T*>(block));
  });
}

void StridedIterator::Gather(const char* data, int64_t begin, int64_t count,
                             char* to) const {
  MoveItems<true>(const_cast<char*>(data), begin, count, to);
}

void StridedIterator::Scatter(char* data, int64_t begin, int64_t count,
                              const char* from) const {
  MoveItems<false>(data, begin, count, const_cast<char*>(from));
}

}  // namespace ipu::model::IPU_SIMD_NS
