// Transposes rows into a strided block: element k of row i goes to
// to[k * step + i].

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_TRANSPOSE_RUN_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_TRANSPOSE_RUN_H_

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// Interleaves the halves of a and b that begin at lane kFrom.
template <int kFrom, typename V, int... kI>
[[gnu::always_inline]] inline V InterleaveHalves(
    V a, V b, std::integer_sequence<int, kI...>) {
  constexpr int kN = sizeof...(kI);
  return __builtin_shufflevector(a, b, (kFrom + kI / 2 + kI % 2 * kN)...);
}

// Lane i of vector k <- lane k of vector i. Each round interleaves the first
// half of the vectors with the second.
template <typename T>
[[gnu::always_inline]] inline void TransposeLanes(Vector<T>* rows) {
  constexpr int kN = kLanes<T>;
  constexpr auto kAll = std::make_integer_sequence<int, kN>();
#pragma GCC unroll 4
  for (int round = 1; round < kN; round *= 2) {
    Vector<T> next[kN];
#pragma GCC unroll 8
    for (int i = 0; i < kN / 2; ++i) {
      next[2 * i] = InterleaveHalves<0>(rows[i], rows[i + kN / 2], kAll);
      next[2 * i + 1] =
          InterleaveHalves<kN / 2>(rows[i], rows[i + kN / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) rows[i] = next[i];
  }
}

#ifdef __AVX2__

// The side of a square block: rows of one 32-byte vector each.
template <typename T>
inline constexpr int kSide = 32 / static_cast<int>(sizeof(T));

template <typename T>
[[gnu::always_inline]] inline void TransposeSquare(const T* from,
                                                   int64_t from_row,
                                                   int64_t last_row, T* to,
                                                   int64_t step) {
  const auto at = [&](int64_t i) {
    return from + std::min(i, last_row) * from_row;
  };
  if constexpr (sizeof(T) == 4) {
    __m256 r[8], s[8];
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps((const float*)at(i));
    for (int i = 0; i < 8; i += 2) {
      s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
      s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; ++i) _mm256_storeu_ps((float*)(to + i * step), s[i]);
  } else {
    __m256d r[4], s[4];
    for (int i = 0; i < 4; ++i) r[i] = _mm256_loadu_pd((const double*)at(i));
    for (int i = 0; i < 4; i += 2) {
      s[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
      s[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      r[i] = _mm256_permute2f128_pd(s[i], s[i + 2], 0x20);
      r[i + 2] = _mm256_permute2f128_pd(s[i], s[i + 2], 0x31);
    }
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_pd((double*)(to + i * step), r[i]);
    }
  }
}

#endif

#if IPU_AVX512

// A square block of whole vectors, of which the first `rows` rows exist. Rows
// that are a large power of two bytes apart compete for one set of the
// first-level cache, so each line should be loaded only once. Measured:
// products of 512 x 512 and of 1024 x 1024 took 0.93 and 0.94 of the time,
// packed by these blocks instead of smaller ones.
template <typename T>
[[gnu::always_inline]] inline void TransposeVectors(const T* from,
                                                    int64_t from_row,
                                                    int64_t rows, T* to,
                                                    int64_t step) {
  constexpr int kN = kLanes<T>;
  Vector<T> v[kN];
  if (rows >= kN) {
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i, from += from_row) v[i] = Load<Vector<T>>(from);
    TransposeLanes<T>(v);
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i, to += step) Store(to, v[i]);
    return;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kN; ++i) {
    v[i] = Load<Vector<T>>(from + std::min(i, rows - 1) * from_row);
  }
  TransposeLanes<T>(v);
  const Mask<T> mask(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) mask.Store(to + i * step, v[i]);
}

#endif

// Rows of kFew elements that follow each other. Writes nothing beyond.
template <int kFew, typename T>
void SplitFew(const T* from, int64_t rows, T* to, int64_t step) {
  int64_t r = 0;
  for (; r + kLanes<T> <= rows; r += kLanes<T>) {
    [&]<int... kI>(std::integer_sequence<int, kI...>) {
      (Store(to + kI * step + r, LoadStrided<kFew>(from + r * kFew + kI)), ...);
    }(std::make_integer_sequence<int, kFew>());
  }
  for (; r < rows; ++r) {
    for (int i = 0; i < kFew; ++i) to[i * step + r] = from[r * kFew + i];
  }
}

// The reverse: kFew rows of k elements.
template <int kFew, typename T>
void JoinFew(const T* from, int64_t from_row, int64_t k, T* to) {
  int64_t i = 0;
  for (; i + kLanes<T> <= k; i += kLanes<T>) {
    Vector<T> rows[kFew];
    for (int r = 0; r < kFew; ++r) {
      rows[r] = Load<Vector<T>>(from + r * from_row + i);
    }
    StoreStrided<kFew>(to + i * kFew, rows);
  }
  for (; i < k; ++i) {
    for (int r = 0; r < kFew; ++r) to[i * kFew + r] = from[r * from_row + i];
  }
}

// Calls f with 2, 3 or 4 as a constant; false for others.
template <typename F>
bool WithFew(int64_t n, const F& f) {
  if (n == 2) f(std::integral_constant<int, 2>());
  if (n == 3) f(std::integral_constant<int, 3>());
  if (n == 4) f(std::integral_constant<int, 4>());
  return n >= 2 && n <= 4;
}

// Writes `rows` <= `step` elements for each of the `k` steps, and up to 32
// bytes beyond the last. T has 4 or 8 bytes.
template <typename T>
void TransposeRun(const T* from, int64_t from_row, int64_t rows, int64_t k,
                  T* to, int64_t step) {
  if (from_row == k &&
      WithFew(k, [&](auto few) { SplitFew<few>(from, rows, to, step); })) {
    return;
  }
  if (step == rows &&
      WithFew(rows, [&](auto few) { JoinFew<few>(from, from_row, k, to); })) {
    return;
  }
  int64_t i = 0;
#if IPU_AVX512
  // The last of several blocks overlaps the one before.
  constexpr int64_t kN = kLanes<T>;
  if (rows > kSide<T> && k >= kN) {
    for (; i < k; i += kN) {
      i = std::min(i, k - kN);
      for (int64_t r = 0; r < rows; r += kN) {
        const int64_t first = rows < kN ? 0 : std::min(r, rows - kN);
        TransposeVectors(from + first * from_row + i, from_row, rows - first,
                         to + i * step + first, step);
      }
    }
    return;
  }
#endif
#ifdef __AVX2__
  // The excess rows of a block are written where the next step's first rows go,
  // and overwritten later. The last of several blocks overlaps the one before.
  for (; i < k && k >= kSide<T>; i += kSide<T>) {
    i = std::min(i, k - kSide<T>);
    for (int64_t r = 0; r < rows; r += kSide<T>) {
      const int64_t first = rows < kSide<T> ? 0 : std::min(r, rows - kSide<T>);
      TransposeSquare(from + first * from_row + i, from_row, rows - 1 - first,
                      to + i * step + first, step);
    }
  }
#endif
  for (; i < k; ++i) {
    for (int64_t r = 0; r < rows; ++r)
      to[i * step + r] = from[r * from_row + i];
  }
}

// Adjacent rows of so many elements take less time if they are transposed first
// and then combined as vectors. Measured (f32, AVX-512, one core): running sums
// of 300,000 elements in rows of 2, 3, 4 and 8 took 113, 106, 101 and 88 us
// instead of 163, 160, 139 and 108, their maxima and indices 182, 145, 129 and
// 92 instead of 420, 285, 213 and 110; in rows of 5 to 7 and of 64 more.
inline constexpr int64_t kMostTransposed = 8;
inline bool IsQuickTransposed(int64_t k) {
  return (k >= 2 && k <= 4) || k == kMostTransposed;
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_TRANSPOSE_RUN_H_
