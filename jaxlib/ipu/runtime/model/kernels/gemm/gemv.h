// The inner loops of vector-matrix products; both run at memory bandwidth.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMV_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMV_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"
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

// to[j] = sum over i < k of x[i] * rows[i * row_step + j], or with `add`
// to[j] += that sum, for n columns that take kVectors vectors: sums stay in
// registers.
template <typename T, int kVectors>
void ScaledNarrowRows(const T* x, const T* rows, int64_t row_step, int64_t k,
                      int64_t n, T* to, bool add) {
  // Independent sums hide the latency of multiply-adds.
  constexpr int kSums = kVectors <= 2 ? 8 / kVectors : 2;
  constexpr int kLast = kVectors - 1;
  const Mask<T> mask(n - kLast * kLanes<T>);
  Vector<T> sums[kSums][kVectors] = {};
  const auto add_row = [&](int64_t i, Vector<T>* sum) {
    const Vector<T> factor = Broadcast(x[i]);
    const T* const row = rows + i * row_step;
    for (int v = 0; v < kLast; ++v) {
      sum[v] =
          MultiplyAdd<T>(factor, Load<Vector<T>>(row + v * kLanes<T>), sum[v]);
    }
    sum[kLast] =
        MultiplyAdd<T>(factor, mask.Load(row + kLast * kLanes<T>), sum[kLast]);
  };
  int64_t i = 0;
  for (; i + kSums <= k; i += kSums) {
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) add_row(i + s, sums[s]);
  }
  for (; i < k; ++i) add_row(i, sums[0]);
  for (int v = 0; v < kVectors; ++v) {
    for (int width = kSums / 2; width > 0; width /= 2) {
      for (int s = 0; s < width; ++s) sums[s][v] += sums[s + width][v];
    }
    T* const place = to + v * kLanes<T>;
    if (v < kLast) {
      if (add) sums[0][v] += Load<Vector<T>>(place);
      Store(place, sums[0][v]);
    } else {
      if (add) sums[0][v] += mask.Load(place);
      mask.Store(place, sums[0][v]);
    }
  }
}

// to[r] += dot product of row r and x, or with kSame = false row r of x, all of
// k elements, for as many rows as a vector has lanes: their sums are added up
// over the lanes together.
template <typename T, bool kSame>
void AddDotsOfEach(const T* x, int64_t x_step, const T* rows, int64_t row_step,
                   int64_t k, T* to) {
  constexpr int kRows = kLanes<T>;
  Vector<T> sums[kRows] = {};
  // Later rows are prefetched: the processor's own prefetcher does not follow
  // as many streams. Measured: of rows of 32 and 64 f32, a sixth faster; of
  // longer ones, as fast.
  const int64_t ahead = 2 * kRows * row_step;
  const auto add = [&](const auto& load, int64_t i) {
    Vector<T> factor = load(x + i);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if (!kSame && r > 0) factor = load(x + r * x_step + i);
      const T* const row = rows + r * row_step + i;
      if (kSame) __builtin_prefetch(row + ahead);
      sums[r] = MultiplyAdd<T>(factor, load(row), sums[r]);
    }
  };
  int64_t i = 0;
  for (; i + kLanes<T> <= k; i += kLanes<T>) {
    add([](const T* p) { return Load<Vector<T>>(p); }, i);
  }
  if (i < k) {
    const Mask<T> mask(k - i);
    add([&mask](const T* p) { return mask.Load(p); }, i);
  }
  Store(to, Load<Vector<T>>(to) + MonoidFold<T, Sum>::FoldLanesOfEach(sums));
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
