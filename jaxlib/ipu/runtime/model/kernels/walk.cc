#include "jaxlib/ipu/runtime/model/kernels/walk.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/simd.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The highest rank that a valid program has.
constexpr size_t kHighestRank = 64;

// `n` elements `stride` apart, from memory into a block.
template <typename T>
inline void GatherRun(const T* from, int64_t stride, int64_t n, T* to) {
  if (stride == 0) {
    // Short runs are common: one vector, however much of it is needed.
    constexpr int kN = kSlackBytes / sizeof(T);
    Vector<T, kN> splat;
    for (int i = 0; i < kN; ++i) splat[i] = *from;
    for (int64_t i = 0; i < n; i += kN) Store(to + i, splat);
  } else if (stride == 1) {
    if (n >= 16) {
      std::memcpy(to, from, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    }
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

template <typename T>
inline void ScatterRun(T* to, int64_t stride, int64_t n, const T* from) {
  if (stride == 1) {
    std::memcpy(to, from, n * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
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

int64_t Walk::period() const {
  return dimensions_.size() == 2 && dimensions_[0].stride == 0 &&
                 dimensions_[1].stride == 1
             ? dimensions_[1].extent
             : 0;
}

template <typename T, bool kGather>
void Walk::Move(T* data, int64_t begin, int64_t count, T* block) const {
  const int last = static_cast<int>(dimensions_.size()) - 1;
  int64_t index[kHighestRank];
  for (int d = last; d >= 0; --d) {
    const Dimension& dimension = dimensions_[d];
    index[d] = begin % dimension.extent;
    begin /= dimension.extent;
    data += index[d] * dimension.stride;
  }
  const Dimension inner = last < 0 ? Dimension{1, 1} : dimensions_[last];
  int64_t at = last < 0 ? 0 : index[last];
  while (count > 0) {
    const int64_t run = std::min(count, inner.extent - at);
    if constexpr (kGather) {
      GatherRun(data, inner.stride, run, block);
    } else {
      ScatterRun(data, inner.stride, run, block);
    }
    block += run;
    count -= run;
    data -= at * inner.stride;
    at = 0;
    for (int d = last - 1; d >= 0; --d) {
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
  const auto move = [&]<typename T>(T*) {
    Move<T, kGather>(reinterpret_cast<T*>(data), begin, count,
                     reinterpret_cast<T*>(block));
  };
  switch (item_size_) {
    case 1:
      return move(static_cast<uint8_t*>(nullptr));
    case 2:
      return move(static_cast<uint16_t*>(nullptr));
    case 4:
      return move(static_cast<uint32_t*>(nullptr));
    default:
      return move(static_cast<uint64_t*>(nullptr));
  }
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
