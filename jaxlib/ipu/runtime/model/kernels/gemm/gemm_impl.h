// The driver of matrix products: selects an algorithm and divides the work
// among threads; see gemm.h. Included only by gemm_*.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_IMPL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_batched.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_boxes.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_dots.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_fourier.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_fourier_rows.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pairs.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_small.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_vector.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// The least number of evenly spaced result rows that are computed as a strip. A
// guess: with fewer, most of a tile's registers would be unused.
inline constexpr int64_t kWorthRows = kTileRows / 2;

}  // namespace gemm

// How the work is split: the number of parts along rows, columns and terms.
template <typename T>
struct Gemm<T>::Grid {
  int64_t m = 1, n = 1, k = 1;

  static Range Part(int64_t size, int64_t parts, int64_t i, int64_t unit) {
    const int64_t units = gemm::CeilDiv(size, unit);
    return {std::min(size, units * i / parts * unit),
            std::min(size, units * (i + 1) / parts * unit)};
  }
};

template <typename T>
Gemm<T>::Gemm(const Product& product, DType native)
    : p_(product), small_(ByColumns(p_)) {
  lhs_native_ = p_.lhs.dtype == native;
  rhs_native_ = p_.rhs.dtype == native;
  short_ = gemm::IsShort(p_.lhs.dtype) && gemm::IsShort(p_.rhs.dtype);
  const Axis& rows = p_.result.row;
  result_native_ = p_.result.dtype == native &&
                   p_.result.column.stride() == 1 &&
                   (rows.even() || rows.run() >= gemm::kWorthRows);
  load_lhs_ = LoadRunOf<T>(p_.lhs.dtype);
  load_rhs_ = LoadRunOf<T>(p_.rhs.dtype);
  store_ = StoreRunOf<T>(p_.result.dtype);
  if (IsSmall(small_)) return;
  if constexpr (std::is_floating_point_v<T>) {
    fourier_rows_ = gemm::FourierRows<T>::Make(product, native);
    if (fourier_rows_) return;
    fourier_ = gemm::FourierProduct<T>::Make(product, native);
  }
  if (!fourier_) boxes_ = gemm::BoxedProduct<T>::Make(product, native);
}

template <typename T>
void Gemm<T>::Run(const char* lhs, const char* rhs, char* result,
                  ThreadPool& threads) const {
  if constexpr (std::is_floating_point_v<T>) {
    if (fourier_rows_) return fourier_rows_->Run(lhs, result, threads);
    if (fourier_) return fourier_->Run(lhs, result, threads);
  }
  if (boxes_) return boxes_->Run(lhs, rhs, result, threads);
  if (p_.exchanged) std::swap(lhs, rhs);
  if (IsSmall(small_)) return RunSmall(lhs, rhs, result, threads);
  if (IsAlongBatch()) return RunAlongBatch(lhs, rhs, result, threads);
  if (IsBatchOfDots()) return RunBatchOfDots(lhs, rhs, result, threads);
  const Grid grid = Split(threads.threads());
  const int64_t parts = p_.batch * grid.m * grid.n;
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * p_.batch;
  if (parts == 0 || p_.m == 0 || p_.n == 0) return;
  if (grid.k == 1) {
    const double grain = gemm::kWorthThread * parts / (work + 1);
    threads.For(
        parts, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t in_batch = i % (grid.m * grid.n);
            RunPart(
                lhs, rhs, result, i / (grid.m * grid.n),
                Grid::Part(p_.m, grid.m, in_batch / grid.n, 1),
                Grid::Part(p_.n, grid.n, in_batch % grid.n, kTileColumns<T>));
          }
        });
    return;
  }
  // Few sums of many terms: each thread sums a part of the terms of all sums.
  const int64_t sums = p_.m * p_.n;
  T* partial = gemm::ThreadBuffers().partial.Get<T>(grid.k * p_.batch * sums);
  threads.For(grid.k * p_.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / grid.k;
      Sum(lhs + p_.lhs.batch.At(b) * p_.lhs.item_size,
          rhs + p_.rhs.batch.At(b) * p_.rhs.item_size, {0, p_.m}, {0, p_.n},
          Grid::Part(p_.k, grid.k, i % grid.k, 1), {partial + i * sums, p_.n},
          /*add=*/false);
    }
  });
  for (int64_t b = 0; b < p_.batch; ++b) {
    T* total = partial + b * grid.k * sums;
    for (int64_t part = 1; part < grid.k; ++part) {
      for (int64_t i = 0; i < sums; ++i) total[i] += total[part * sums + i];
    }
    StoreRows(total, {0, p_.m}, {0, p_.n},
              result + p_.result.batch.At(b) * p_.result.item_size);
  }
}

template <typename T>
typename Gemm<T>::Grid Gemm<T>::Split(int threads) const {
  using gemm::CeilDiv;
  Grid best;
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * p_.batch;
  const int64_t target = std::min(2.0 * threads, work / gemm::kWorthThread);
  if (threads == 1 || target <= p_.batch) return best;
  const int64_t pieces = CeilDiv(target, p_.batch);
  double least = 0;
  for (int64_t m = 1; m <= std::min(pieces, p_.m); ++m) {
    const int64_t n = std::min(pieces / m, CeilDiv(p_.n, kTileColumns<T>));
    const double rows = CeilDiv(p_.m, m);
    const double columns =
        CeilDiv(CeilDiv(p_.n, n), kTileColumns<T>) * kTileColumns<T>;
    // Estimated cycles per term: one per vector of products, and about half a
    // cycle per packed element.
    const double part = rows * columns / kLanes<T> + (rows + columns) / 2;
    const double time = part * CeilDiv(m * n * p_.batch, threads);
    if (least != 0 && time >= least) continue;
    least = time;
    best.m = m;
    best.n = n;
  }
  // Split the terms where there are too few sums, or too narrow stripes, to
  // occupy the threads.
  const int64_t tiles = p_.m * CeilDiv(p_.n, kTileColumns<T>) * p_.batch;
  if (tiles < 2 * threads && p_.k >= 2048) {
    best = {.m = 1, .n = 1, .k = std::min(pieces, p_.k / 1024)};
  }
  return best;
}

template <typename T>
void Gemm<T>::RunPart(const char* lhs, const char* rhs, char* result,
                      int64_t batch, Range m, Range n) const {
  lhs += p_.lhs.batch.At(batch) * p_.lhs.item_size;
  rhs += p_.rhs.batch.At(batch) * p_.rhs.item_size;
  result += p_.result.batch.At(batch) * p_.result.item_size;
  const Range k = {0, p_.k};
  if (result_native_) {
    T* const to = reinterpret_cast<T*>(result) + n.begin;
    return Sum(lhs, rhs, m, n, k, {to, 0, &p_.result.row}, p_.adds);
  }
  // Sum in T first, in blocks that stay in a third-level cache: both operands
  // are packed again for each block. Measured, of bf16, 512 x 512 with AVX2:
  // 512 rows took 0.9 of the time of 96.
  constexpr int64_t kRows = 512, kColumns = 512;
  for (int64_t i = m.begin; i < m.end; i += kRows) {
    for (int64_t j = n.begin; j < n.end; j += kColumns) {
      const Range rows = {i, std::min(m.end, i + kRows)};
      const Range columns = {j, std::min(n.end, j + kColumns)};
      T* sums = gemm::ThreadBuffers().result.Get<T>(kRows * kColumns);
      Sum(lhs, rhs, rows, columns, k, {sums, columns.size()}, /*add=*/false);
      StoreRows(sums, rows, columns, result);
    }
  }
}

template <typename T>
void Gemm<T>::StoreRows(const T* from, Range m, Range n, char* result) const {
  const int64_t step = p_.result.column.stride();
  for (int64_t i = m.begin; i < m.end; ++i) {
    const int64_t at = p_.result.row.At(i) + n.begin * step;
    if (p_.adds) {
      T* const to = reinterpret_cast<T*>(result) + at;
      for (int64_t j = 0; j < n.size(); ++j) to[j * step] += from[j];
    } else {
      store_(from, n.size(), result + at * p_.result.item_size, step);
    }
    from += n.size();
  }
}

template <typename T>
void Gemm<T>::Sum(const char* lhs, const char* rhs, Range m, Range n, Range k,
                  const ResultRows& to, bool add) const {
  if (k.size() == 0) {
    if (add) return;
    to.ForStrips(m, [&](int64_t, int64_t rows, T* c, int64_t step) {
      for (int64_t i = 0; i < rows; ++i) {
        std::fill_n(c + i * step, n.size(), T{});
      }
    });
    return;
  }
  const bool even = p_.rhs.row.even() && p_.rhs.column.even();
  // With very few terms the stores dominate, and row by row is fastest.
  const bool flat = rhs_native_ && p_.rhs.row.stride() == 1 && k.size() <= 4 &&
                    n.size() >= 4 * kTileColumns<T>;
  if (even && (m.size() == 1 || flat)) {
    to.ForStrips(m, [&](int64_t first, int64_t rows, T* c, int64_t step) {
      for (int64_t i = 0; i < rows; ++i) {
        SumVector(lhs, rhs, m.begin + first + i, n, k, c + i * step, add);
      }
    });
  } else if (IsDots(m, n, k)) {
    SumDots(lhs, rhs, m, n, k, to, add);
  } else {
    SumBlocks(lhs, rhs, m, n, k, to, add);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_IMPL_H_
