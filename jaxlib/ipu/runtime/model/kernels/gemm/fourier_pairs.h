// Complex numbers in memory whose real and imaginary parts are adjacent;
// included only by gemm_fourier*.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_PAIRS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_PAIRS_H_

#include <cstdint>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_transform.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Which pairs of real and imaginary parts follow each other.
enum class Pairs : uint8_t {
  kNone,    // parts are not adjacent
  kOfRow,   // all of a row
  kOthers,  // perhaps those of different rows
};

// `step`: between the real parts of a row.
inline Pairs PairsOf(int64_t planes, int64_t between_planes, int64_t step) {
  if (planes != 2 || between_planes != 1) return Pairs::kNone;
  return step == 2 ? Pairs::kOfRow : Pairs::kOthers;
}

// As many pairs as a vector has lanes.
template <typename T>
[[gnu::always_inline]] inline ComplexLanes<T> LoadPairs(const T* from) {
  const Vector<T> a = Load<Vector<T>>(from);
  const Vector<T> b = Load<Vector<T>>(from + kLanes<T>);
  return [a, b]<int... kI>(std::integer_sequence<int, kI...>) {
    return ComplexLanes<T>{__builtin_shufflevector(a, b, 2 * kI...),
                           __builtin_shufflevector(a, b, (2 * kI + 1)...)};
  }(std::make_integer_sequence<int, kLanes<T>>());
}

// Splits pairs that follow each other into two arrays.
template <typename T>
void SplitPairs(const T* from, int64_t count, T* re, T* im) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const ComplexLanes<T> x = LoadPairs(from + 2 * i);
    Store(re + i, x.re);
    Store(im + i, x.im);
  }
  for (; i < count; ++i) {
    re[i] = from[2 * i];
    im[i] = from[2 * i + 1];
  }
}

// Writes the first `kept` coefficients of rows, of which `from` has a vector of
// real and then one of imaginary parts each.
template <typename T>
void StorePairs(const T* from, int64_t kept, const Axis& rows, IndexRange range,
                Pairs pairs, int64_t step, T* result) {
  constexpr int64_t kLane = kLanes<T>;
  const bool whole = range.size() == kLane && rows.InOneRun(range);
  if (pairs == Pairs::kOthers && whole && rows.stride() == 2) {
    T* to = result + rows.At(range.begin);
    for (int64_t k = 0; k < kept; ++k, from += 2 * kLane, to += step) {
      StoreStrided<2>(to,
                      {Load<Vector<T>>(from), Load<Vector<T>>(from + kLane)});
    }
    return;
  }
  rows.ForRuns(range, [&](int64_t at, int64_t lane, int64_t lanes) {
    // TransposeRun may write beyond the end of shorter rows.
    if (pairs == Pairs::kOfRow && 2 * kept >= kLane) {
      return TransposeRun(from + lane, kLane, 2 * kept, lanes, result + at,
                          rows.stride());
    }
    for (int64_t i = 0; i < lanes; ++i, at += rows.stride()) {
      for (int64_t k = 0; k < kept; ++k) {
        const T* const pair = from + 2 * k * kLane + lane + i;
        result[at + k * step] = pair[0];
        result[at + k * step + 1] = pair[kLane];
      }
    }
  });
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_PAIRS_H_
