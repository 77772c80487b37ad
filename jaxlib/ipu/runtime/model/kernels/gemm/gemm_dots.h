// Products of few rows with a matrix whose terms are contiguous, such as
// x @ w.T, on one thread; included only by gemm_*.cc.
//
// Tiles of columns would need that matrix transposed, which takes longer than
// to multiply it by a few rows. Here the lanes of a vector are terms instead of
// columns: both operands are read where they are, and a tile's sums are added
// up over their lanes at its end.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_DOTS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_DOTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// The rows and columns of a tile: with two vectors of columns and one of a row,
// its sums fit into the registers, and they hide the latency of multiply-adds.
#if IPU_AVX512
inline constexpr int kDotRows = 8;
#else
inline constexpr int kDotRows = 4;
#endif
inline constexpr int kDotColumns = 2;
// Terms at a time: those of a tile's rows and columns stay in the first-level
// cache.
inline constexpr int64_t kDotTerms = 1024;
// At most so many rows with at least so many terms for each of them; with fewer
// terms, adding up the lanes takes longer than transposing. Measured, of 1024
// columns with AVX-512: 2 rows of 64 terms took 0.82 of the time of tiles of
// columns, 8 rows of 128 1.19, of 256 0.89 and of 4096 0.45; 16 rows of 256
// 1.26, of 512 0.98 and of 4096 0.77; 24 rows of 4096 1.10.
inline constexpr int64_t kFewDotRows = 16;
inline constexpr int64_t kWorthDotTerms = 32;

// Columns that are at least this many bytes apart are fetched ahead: a page,
// beyond which processors do not foresee what is read next. Measured (AVX-512,
// one core): 8 rows by 1000 columns of 4000 terms took 0.5 of the time, 4 by
// 1024 of 1024 0.96, and 16 of them, in the second-level cache, 1.04.
inline constexpr int64_t kFarColumns = 4096;

// to[i * to_row + j] += sum over k of rows[i * step + k] * columns[j * pitch +
// k]. Fetches the next columns if `kAhead`.
template <typename T, int kRows, int kColumns, bool kAhead>
void AddDotTile(const T* rows, int64_t step, const T* columns, int64_t pitch,
                int64_t terms, T* to, int64_t to_row) {
  // As many as whole vectors have lanes, some of which may be zero.
  constexpr int kSums = CeilDiv(kRows * kColumns, kLanes<T>) * kLanes<T>;
  Vector<T> sums[kSums] = {};
  const auto add = [&](const auto& load, int64_t k) {
    Vector<T> factors[kColumns];
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j)
      factors[j] = load(columns + j * pitch + k);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vector<T> row = load(rows + i * step + k);
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; ++j) {
        Vector<T>& sum = sums[i * kColumns + j];
        sum = MultiplyAdd<T>(row, factors[j], sum);
      }
    }
  };
  int64_t k = 0;
  for (; k + kLanes<T> <= terms; k += kLanes<T>) {
#pragma GCC unroll 2
    for (int j = 0; kAhead && j < kColumns; ++j) {
      __builtin_prefetch(columns + (kColumns + j) * pitch + k);
    }
    add([](const T* p) { return Load<Vector<T>>(p); }, k);
  }
  if (k < terms) {
    const Mask<T> mask(terms - k);
    add([&mask](const T* p) { return mask.Load(p); }, k);
  }
  for (int from = 0; from < kSums; from += kLanes<T>) {
    T totals[kLanes<T>];
    Store(totals, MonoidFold<T, Sum>::FoldLanesOfEach(sums + from));
    const int until = std::min(kRows * kColumns - from, kLanes<T>);
    for (int s = 0; s < until; ++s) {
      const int i = (from + s) / kColumns, j = (from + s) % kColumns;
      to[i * to_row + j] += totals[s];
    }
  }
}

template <typename T>
using DotTileFunction = void (*)(const T*, int64_t, const T*, int64_t, int64_t,
                                 T*, int64_t);

template <typename T, int kColumns, bool kAhead>
inline constexpr auto kDotTiles =
    []<int... rows>(std::integer_sequence<int, rows...>) {
      return std::array<DotTileFunction<T>, sizeof...(rows)>{
          AddDotTile<T, rows + 1, kColumns, kAhead>...};
    }(std::make_integer_sequence<int, kDotRows>());

}  // namespace gemm

template <typename T>
bool Gemm<T>::IsDots(Range m, Range n, Range k) const {
  const Matrix& b = p_.rhs;
  return m.size() <= gemm::kFewDotRows && n.size() >= gemm::kDotColumns &&
         k.size() >= m.size() * gemm::kWorthDotTerms && rhs_native_ &&
         b.row.even() && b.column.even() && b.column.stride() == 1 &&
         b.row.stride() != 1;
}

template <typename T>
void Gemm<T>::SumDots(const char* lhs, const char* rhs, Range m, Range n,
                      Range k, const ResultRows& to, bool add) const {
  const Matrix& a = p_.lhs;
  const int64_t pitch = p_.rhs.row.stride();
  const T* const columns =
      reinterpret_cast<const T*>(rhs) + n.begin * pitch + k.begin;
  const bool far = std::abs(pitch) * int64_t{sizeof(T)} >= gemm::kFarColumns;
  const bool direct =
      lhs_native_ && a.row.even() && a.column.even() && a.column.stride() == 1;
  const T* rows = reinterpret_cast<const T*>(lhs) + k.begin;
  int64_t step = a.row.stride();
  if (direct) {
    rows += m.begin * step;
  } else {
    step = k.size();
    T* const dense = gemm::ThreadBuffers().rows.Get<T>(m.size() * step);
    for (int64_t i = 0; i < m.size(); ++i) {
      const char* const row = lhs + a.row.At(m.begin + i) * a.item_size;
      a.column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
        load_lhs_(row + at * a.item_size, a.column.stride(), count,
                  dense + i * step + first);
      });
    }
    rows = dense;
  }
  to.ForStrips(m, [&](int64_t first, int64_t count, T* c, int64_t c_row) {
    if (!add) {
      for (int64_t i = 0; i < count; ++i) {
        std::fill_n(c + i * c_row, n.size(), T{});
      }
    }
    for (int64_t t = 0; t < k.size(); t += gemm::kDotTerms) {
      const int64_t terms = std::min(gemm::kDotTerms, k.size() - t);
      for (int64_t j = 0; j < n.size(); j += gemm::kDotColumns) {
        const bool whole = j + gemm::kDotColumns <= n.size();
        const int64_t width = whole ? 1 : n.size() - j;
        for (int64_t i = 0; i < count; i += gemm::kDotRows) {
          const int64_t height = std::min<int64_t>(gemm::kDotRows, count - i);
          const auto& tiles =
              !whole          ? gemm::kDotTiles<T, 1, false>
              : far && i == 0 ? gemm::kDotTiles<T, gemm::kDotColumns, true>
                              : gemm::kDotTiles<T, gemm::kDotColumns, false>;
          for (int64_t w = 0; w < width; ++w) {
            tiles[height - 1](rows + (first + i) * step + t, step,
                              columns + (j + w) * pitch + t, pitch, terms,
                              c + i * c_row + j + w, c_row);
          }
        }
      }
    }
  });
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_DOTS_H_
