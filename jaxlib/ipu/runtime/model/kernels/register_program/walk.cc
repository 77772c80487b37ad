#include "jaxlib/ipu/runtime/model/kernels/register_program/walk.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/copy/transpose.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// `n` elements `stride` apart, from memory into a block or back.
template <typename T, bool kGather>
inline void MoveRun(T* data, int64_t stride, int64_t n, T* block) {
  if constexpr (!kGather) {
    if (stride == 1) {
      std::memcpy(data, block, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) data[i * stride] = block[i];
    }
  } else if (stride == 0) {
    // Short runs are common: vectors, however little of the last is needed.
    constexpr int kN = 32 / sizeof(T);
    const auto splat = Splat<Vector<T, kN>>(*data);
    for (int64_t i = 0; i < n; i += kN) Store(block + i, splat);
  } else if (stride == 1 && n >= 16) {
    std::memcpy(block, data, n * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) block[i] = data[i * stride];
  }
}

// Elements that come n times each, for n that fit kBytes.
template <typename T, int kBytes>
void RepeatEach(const T* data, int64_t stride, int64_t rows, int64_t n,
                T* block) {
  for (int64_t row = 0; row < rows; ++row) {
    Store(block + row * n, Splat<Vector<T, kBytes / sizeof(T)>>(*data));
    data += stride;
  }
}

// `n` elements again and again: what is there is doubled.
template <typename T>
void RepeatRow(const T* data, int64_t rows, int64_t n, T* block) {
  std::copy_n(data, n, block);
  for (int64_t done = n; done < rows * n;) {
    const int64_t more = std::min(done, rows * n - done);
    std::memcpy(block + done, block, more * sizeof(T));
    done += more;
  }
}

// The same as MoveRun for `rows` runs.
template <typename T, bool kGather>
void MoveRows(T* data, int64_t row_stride, int64_t rows, int64_t stride,
              int64_t n, T* block) {
  const size_t bytes = n * sizeof(T);
  if (kGather && stride == 0 && bytes <= 32) {
    return bytes <= 16 ? RepeatEach<T, 16>(data, row_stride, rows, n, block)
                       : RepeatEach<T, 32>(data, row_stride, rows, n, block);
  }
  if constexpr (kGather) {
    if (row_stride == 0 && stride == 1 && rows > 1) {
      return RepeatRow(data, rows, n, block);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    MoveRun<T, kGather>(data, stride, n, block);
    data += row_stride;
    block += n;
  }
}

}  // namespace

Walk::Walk(const std::vector<int64_t>& shape, const Operand& operand)
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

bool Walk::uniform() const {
  return dimensions_.empty() ||
         (dimensions_.size() == 1 && dimensions_[0].stride == 0);
}

bool Walk::dense() const {
  return dimensions_.empty() ||
         (dimensions_.size() == 1 && dimensions_[0].stride == 1);
}

int64_t Walk::run() const {
  return !dimensions_.empty() && dimensions_.back().stride == 0
             ? dimensions_.back().extent
             : 1;
}

int64_t Walk::period() const {
  return dimensions_.size() == 2 && dimensions_[0].stride == 0 &&
                 dimensions_[1].stride == 1
             ? dimensions_[1].extent
             : 0;
}

int64_t Walk::row() const {
  return dimensions_.size() >= 2 && dimensions_.back().stride == 1
             ? dimensions_.back().extent
             : 0;
}

bool Walk::transposed() const {
  const size_t n = dimensions_.size();
  return n >= 2 && dimensions_[n - 2].stride == 1 &&
         dimensions_[n - 1].stride != 0 && dimensions_[n - 1].stride != 1;
}

int64_t Walk::Locate(int64_t begin, int64_t* index) const {
  int64_t at = 0;
  for (size_t d = dimensions_.size(); d-- > 0;) {
    const Dimension& dimension = dimensions_[d];
    index[d] = begin % dimension.extent;
    begin /= dimension.extent;
    at += index[d] * dimension.stride;
  }
  return at;
}

const char* Walk::At(char* const* bases, int64_t index) const {
  int64_t indices[program::kHighestRank];
  return Data(bases) + Locate(index, indices) * item_size_;
}

void Walk::GatherRows(const char* data, int64_t begin, int64_t rows,
                      char* to) const {
  int64_t index[program::kHighestRank];
  const int64_t item = item_size_;
  Transpose(item, rows, columns(), data + Locate(begin, index) * item,
            dimensions_.back().stride * item, to, columns() * item);
}

template <typename T, bool kGather>
void Walk::Move(T* data, int64_t begin, int64_t count, T* block) const {
  // Rows are the last dimension, their number the one before.
  const size_t rank = dimensions_.size();
  int64_t index[program::kHighestRank];
  data += Locate(begin, index);
  const Dimension row = rank < 1 ? Dimension{1, 1} : dimensions_[rank - 1];
  const Dimension rows = rank < 2 ? Dimension{1, 0} : dimensions_[rank - 2];
  int64_t at = rank < 1 ? 0 : index[rank - 1];
  int64_t row_at = rank < 2 ? 0 : index[rank - 2];
  while (count > 0) {
    if (at != 0 || count < row.extent) {
      const int64_t n = std::min(count, row.extent - at);
      MoveRun<T, kGather>(data, row.stride, n, block);
      block += n;
      count -= n;
      data += rows.stride - at * row.stride;
      at = 0;
      ++row_at;
    } else {
      const int64_t n = std::min(count / row.extent, rows.extent - row_at);
      MoveRows<T, kGather>(data, rows.stride, n, row.stride, row.extent, block);
      block += n * row.extent;
      count -= n * row.extent;
      data += n * rows.stride;
      row_at += n;
    }
    if (row_at < rows.extent) continue;
    data -= row_at * rows.stride;
    row_at = 0;
    for (size_t d = rank - 2; rank > 2 && d-- > 0;) {
      data += dimensions_[d].stride;
      if (++index[d] < dimensions_[d].extent) break;
      data -= dimensions_[d].extent * dimensions_[d].stride;
      index[d] = 0;
    }
  }
}

template <bool kGather>
void Walk::MoveItems(char* data, int64_t begin, int64_t count,
                     char* block) const {
  WithItem(item_size_, [&]<typename T>(T) {
    Move<T, kGather>(reinterpret_cast<T*>(data), begin, count,
                     reinterpret_cast<T*>(block));
  });
}

void Walk::Gather(const char* data, int64_t begin, int64_t count,
                  char* to) const {
  MoveItems<true>(const_cast<char*>(data), begin, count, to);
}

void Walk::Scatter(char* data, int64_t begin, int64_t count,
                   const char* from) const {
  MoveItems<false>(data, begin, count, const_cast<char*>(from));
}

template <typename T>
void FillIota(int64_t inner, int64_t extent, int64_t begin, int64_t count,
              T* to) {
  int64_t value = begin / inner % extent;
  int64_t left = inner - begin % inner;  // how often this value comes yet
  while (count > 0) {
    if (inner == 1) {
      const int64_t run = std::min(count, extent - value);
      for (int64_t i = 0; i < run; ++i) to[i] = static_cast<T>(value + i);
      to += run;
      count -= run;
      value = 0;
    } else {
      const int64_t run = std::min(count, left);
      std::fill_n(to, run, static_cast<T>(value));
      to += run;
      count -= run;
      left = inner;
      if (++value == extent) value = 0;
    }
  }
}

template void FillIota(int64_t, int64_t, int64_t, int64_t, float*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, double*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, uint32_t*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, uint64_t*);

}  // namespace ipu::model::IPU_SIMD_NS
