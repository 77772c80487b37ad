// The inner loops of vector-matrix products; both run at memory bandwidth.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMV_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMV_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// to[j] = sum over r < kRows of x[r] * rows[r * row_step + j], or with `kAdd`
// to[j] += that sum.
template <typename T, int kRows, bool kAdd>
void ScaledRows(const T* x, const T* rows, int64_t row_step, int64_t n, T* to) {
  Vector<T> factors[kRows];
  for (int r = 0; r < kRows; ++r) factors[r] = Broadcast(x[r]);
  int64_t j = 0;
  for (; j + kLanes<T> <= n; j += kLanes<T>) {
    Vector<T> sum = {};
    if constexpr (kAdd) sum = Load<Vector<T>>(to + j);
    for (int r = 0; r < kRows; ++r) {
      const Vector<T> row = Load<Vector<T>>(rows + r * row_step + j);
      sum = MultiplyAdd<T>(factors[r], row, sum);
    }
    Store(to + j, sum);
  }
  if (j == n) return;
  const Mask<T> mask(n - j);
  Vector<T> sum = {};
  if constexpr (kAdd) sum = mask.Load(to + j);
  for (int r = 0; r < kRows; ++r) {
    sum = MultiplyAdd<T>(factors[r], mask.Load(rows + r * row_step + j), sum);
  }
  mask.Store(to + j, sum);
}

// to[r] += dot product of x and row r, both of k elements.
template <typename T, int kRows>
void AddDots(const T* x, const T* rows, int64_t row_step, int64_t k, T* to) {
  // Eight independent sums hide the latency of multiply-adds.
  constexpr int kSums = 8 / kRows, kStep = kSums * kLanes<T>;
  Vector<T> sums[kRows][kSums] = {};
  int64_t i = 0;
  for (; i + kStep <= k; i += kStep) {
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) {
      const Vector<T> factor = Load<Vector<T>>(x + i + s * kLanes<T>);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const T* row = rows + r * row_step + i + s * kLanes<T>;
        sums[r][s] = MultiplyAdd<T>(factor, Load<Vector<T>>(row), sums[r][s]);
      }
    }
  }
  for (; i < k; i += kLanes<T>) {
    const Mask<T> mask(k - i < kLanes<T> ? k - i : kLanes<T>);
    const Vector<T> factor = mask.Load(x + i);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = MultiplyAdd<T>(factor, mask.Load(rows + r * row_step + i),
                                  sums[r][0]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int width = kSums / 2; width > 0; width /= 2) {
      for (int s = 0; s < width; ++s) sums[r][s] += sums[r][s + width];
    }
    to[r] += AddLanes<T>(sums[r][0]);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMV_H_
