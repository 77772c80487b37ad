// Operations on vectors of 4- and 8-byte elements for matrix products and
// reductions: masked loads and stores, multiply-add, sums over lanes.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_MASKED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_MASKED_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
[[gnu::always_inline]] inline Vector<T> Broadcast(T x) {
#if IPU_AVX512
  if constexpr (std::is_same_v<T, float>) return _mm512_set1_ps(x);
  if constexpr (std::is_same_v<T, double>) return _mm512_set1_pd(x);
  if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
    return (Vector<T>)_mm512_set1_epi32(x);
  }
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    return (Vector<T>)_mm512_set1_epi64(x);
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float>) return _mm256_set1_ps(x);
  if constexpr (std::is_same_v<T, double>) return _mm256_set1_pd(x);
  if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
    return (Vector<T>)_mm256_set1_epi32(x);
  }
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    return (Vector<T>)_mm256_set1_epi64x(x);
  }
#endif
  return Splat<Vector<T>>(x);
}

// a * b + c; floats use a fused multiply-add where the processor has it.
template <typename T>
[[gnu::always_inline]] inline Vector<T> MultiplyAdd(Vector<T> a, Vector<T> b,
                                                    Vector<T> c) {
#if IPU_AVX512
  if constexpr (std::is_same_v<T, float>) return _mm512_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<T, double>) return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (std::is_same_v<T, float>) return _mm256_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<T, double>) return _mm256_fmadd_pd(a, b, c);
#endif
  return a * b + c;
}

// The sum of all lanes, by pairwise summation.
template <typename T>
[[gnu::always_inline]] inline T AddLanes(Vector<T> v) {
  T lanes[kLanes<T>];
  Store(lanes, v);
#pragma GCC unroll 4
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// One bit per lane of a comparison's result; the first lane is the lowest bit.
template <typename T>
[[gnu::always_inline]] inline uint32_t LaneBits(Vector<SignedBits<T>> lanes) {
#if IPU_AVX512
  if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask((__m512i)lanes);
  if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask((__m512i)lanes);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return _mm256_movemask_ps((__m256)lanes);
  if constexpr (sizeof(T) == 8) return _mm256_movemask_pd((__m256d)lanes);
#endif
  uint32_t bits = 0;
  for (int i = 0; i < kLanes<T>; ++i) bits |= (lanes[i] & 1u) << i;
  return bits;
}

// Selects `n` lanes from the first or from lane `from` on, 0 <= n <= kLanes<T>
// - from. Memory of other lanes is not accessed; they read as 0 or as
// `otherwise`. Construct masks outside of loops.
template <typename T>
class Mask {
 public:
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);

#if IPU_AVX512
  explicit Mask(int64_t n, int from = 0) : bits_(((1u << n) - 1) << from) {}

  Vector<T> Load(const T* p) const {
    if constexpr (sizeof(T) == 4) {
      return (Vector<T>)_mm512_maskz_loadu_epi32(bits_, p);
    } else {
      return (Vector<T>)_mm512_maskz_loadu_epi64(bits_, p);
    }
  }
  Vector<T> Load(const T* p, Vector<T> otherwise) const {
    if constexpr (sizeof(T) == 4) {
      return (Vector<T>)_mm512_mask_loadu_epi32((__m512i)otherwise, bits_, p);
    } else {
      return (Vector<T>)_mm512_mask_loadu_epi64((__m512i)otherwise, bits_, p);
    }
  }
  Vector<T> Select(Vector<T> v, Vector<T> otherwise) const {
    if constexpr (sizeof(T) == 4) {
      return (Vector<T>)_mm512_mask_mov_epi32((__m512i)otherwise, bits_,
                                              (__m512i)v);
    } else {
      return (Vector<T>)_mm512_mask_mov_epi64((__m512i)otherwise, bits_,
                                              (__m512i)v);
    }
  }
  void Store(T* p, Vector<T> v) const {
    if constexpr (sizeof(T) == 4) {
      _mm512_mask_storeu_epi32(p, bits_, (__m512i)v);
    } else {
      _mm512_mask_storeu_epi64(p, bits_, (__m512i)v);
    }
  }

 private:
  uint32_t bits_;
#elif defined(__AVX2__)
  explicit Mask(int64_t n, int from = 0)
      : bits_(_mm256_andnot_si256(Below(from), Below(from + n))) {}

  Vector<T> Load(const T* p) const {
    if constexpr (sizeof(T) == 4) {
      return (Vector<T>)_mm256_maskload_epi32((const int*)p, bits_);
    } else {
      return (Vector<T>)_mm256_maskload_epi64((const long long*)p, bits_);
    }
  }
  Vector<T> Load(const T* p, Vector<T> otherwise) const {
    return Select(Load(p), otherwise);
  }
  Vector<T> Select(Vector<T> v, Vector<T> otherwise) const {
    return (Vector<T>)_mm256_blendv_epi8((__m256i)otherwise, (__m256i)v, bits_);
  }
  void Store(T* p, Vector<T> v) const {
    if constexpr (sizeof(T) == 4) {
      _mm256_maskstore_epi32((int*)p, bits_, (__m256i)v);
    } else {
      _mm256_maskstore_epi64((long long*)p, bits_, (__m256i)v);
    }
  }

 private:
  static __m256i Below(int64_t n) {
    if constexpr (sizeof(T) == 4) {
      return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    } else {
      return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n),
                                _mm256_setr_epi64x(0, 1, 2, 3));
    }
  }

  __m256i bits_;
#else
  explicit Mask(int64_t n, int from = 0)
      : from_(from), end_(from + static_cast<int>(n)) {}

  Vector<T> Load(const T* p) const {
    Vector<T> v = {};
    for (int i = from_; i < end_; ++i) v[i] = p[i];
    return v;
  }
  Vector<T> Load(const T* p, Vector<T> otherwise) const {
    return Select(Load(p), otherwise);
  }
  Vector<T> Select(Vector<T> v, Vector<T> otherwise) const {
    for (int i = from_; i < end_; ++i) otherwise[i] = v[i];
    return otherwise;
  }
  void Store(T* p, Vector<T> v) const {
    for (int i = from_; i < end_; ++i) p[i] = v[i];
  }

 private:
  int from_, end_;
#endif
};

// A mask of all lanes: for code that has one variant for whole vectors, where a
// masked store is slow (with AVX2 on Zen, 18 instructions inside of it).
template <typename T>
struct AllLanes {
  explicit AllLanes(int64_t) {}
  Vector<T> Load(const T* p) const {
    return ipu::model::IPU_SIMD_NS::Load<Vector<T>>(p);
  }
  void Store(T* p, Vector<T> v) const { ipu::model::IPU_SIMD_NS::Store(p, v); }
};

// Lane i of the result is element i * kStride of the vectors a and b, which are
// numbers kFirst and kFirst + 1 of those in memory; any if they have none.
template <int kStride, int kFirst, typename V, int... kI>
[[gnu::always_inline]] inline V SelectStrided(
    V a, V b, std::integer_sequence<int, kI...>) {
  constexpr int kN = sizeof...(kI);
  constexpr auto lane = [](int i) {
    const int place = i * kStride - kFirst * kN;
    return place >= 0 && place < 2 * kN ? place : 0;
  };
  return __builtin_shufflevector(a, b, lane(kI)...);
}

// The elements at p with a stride of 2, 3 or 4, as one vector. Loads whole
// vectors, which takes less time than one element after the other, but accesses
// no memory beyond the last element.
template <int kStride, typename T>
[[gnu::always_inline]] inline Vector<T> LoadStrided(const T* p) {
  constexpr int kN = kLanes<T>;
  static_assert(kStride >= 2 && kStride <= 4);
  constexpr auto kAll = std::make_integer_sequence<int, kN>();
  const auto at = [p](int number) { return Load<Vector<T>>(p + number * kN); };
  const Vector<T> end = Mask<T>(kN - kStride + 1).Load(p + (kStride - 1) * kN);
  if constexpr (kStride == 2) {
    return SelectStrided<2, 0>(at(0), end, kAll);
  } else {
    const Vector<T> low = SelectStrided<kStride, 0>(at(0), at(1), kAll);
    const Vector<T> high =
        SelectStrided<kStride, 2>(kStride == 3 ? end : at(2), end, kAll);
    return [&]<int... kI>(std::integer_sequence<int, kI...>) {
      return __builtin_shufflevector(low, high,
                                     (kI * kStride < 2 * kN ? kI : kN + kI)...);
    }(kAll);
  }
}

// Copies elements with a stride of 2, 3 or 4 that fill vectors; returns how
// many of the n.
template <int kStride, typename T>
[[gnu::always_inline]] inline int64_t CopyStrided(const T* from, int64_t n,
                                                  T* to) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    Store(to + i, LoadStrided<kStride>(from + i * kStride));
  }
  return i;
}

// Vector kPart of those that hold the lanes of kStride vectors alternately: the
// lanes of vectors kFirst and kFirst + 1, which are a and b; any where it holds
// others.
template <int kStride, int kPart, int kFirst, typename V, int... kI>
[[gnu::always_inline]] inline V Alternate(V a, V b,
                                          std::integer_sequence<int, kI...>) {
  constexpr int kN = sizeof...(kI);
  constexpr auto lane = [](int i) {
    const int place = i + kPart * kN, vector = place % kStride - kFirst;
    return vector == 0 || vector == 1 ? vector * kN + place / kStride : 0;
  };
  return __builtin_shufflevector(a, b, lane(kI)...);
}

// In vector kPart: lanes of the first two vectors from a, of others from b.
template <int kStride, int kPart, typename V, int... kI>
[[gnu::always_inline]] inline V BlendAlternate(
    V a, V b, std::integer_sequence<int, kI...>) {
  constexpr int kN = sizeof...(kI);
  return __builtin_shufflevector(
      a, b, ((kI + kPart * kN) % kStride < 2 ? kI : kN + kI)...);
}

// Stores the lanes of kStride vectors, 2 to 4, alternately: lane i of the first
// is element i * kStride.
template <int kStride, typename T>
[[gnu::always_inline]] inline void StoreStrided(
    T* p, const Vector<T> (&vectors)[kStride]) {
  static_assert(kStride >= 2 && kStride <= 4);
  constexpr auto kAll = std::make_integer_sequence<int, kLanes<T>>();
  [&]<int... kPart>(std::integer_sequence<int, kPart...>) {
    const auto part = [&]<int k>(std::integral_constant<int, k>) {
      const Vector<T> two =
          Alternate<kStride, k, 0>(vectors[0], vectors[1], kAll);
      if constexpr (kStride == 2) return two;
      const Vector<T> others = Alternate<kStride, k, 2>(
          vectors[2 % kStride], vectors[kStride - 1], kAll);
      return BlendAlternate<kStride, k>(two, others, kAll);
    };
    (Store(p + kPart * kLanes<T>, part(std::integral_constant<int, kPart>())),
     ...);
  }(std::make_integer_sequence<int, kStride>());
}

// The elements at these offsets, in bytes. 10^6 f32 of 1000 took 320 us instead
// of 575 one by one, and of 10^6 600 instead of 830 (AVX-512, one core).
template <typename T>
[[gnu::always_inline]] inline Vector<T> LoadAt(
    const char* from, Vector<int32_t, kLanes<T>> offsets) {
#if IPU_AVX512
  if constexpr (sizeof(T) == 4) {
    return (Vector<T>)_mm512_i32gather_epi32((__m512i)offsets, from, 1);
  } else {
    return (Vector<T>)_mm512_i32gather_epi64((__m256i)offsets, from, 1);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return (Vector<T>)_mm256_i32gather_epi32((const int*)from, (__m256i)offsets,
                                             1);
  } else {
    return (Vector<T>)_mm256_i32gather_epi64((const long long*)from,
                                             (__m128i)offsets, 1);
  }
#else
  Vector<T> v;
  for (int i = 0; i < kLanes<T>; ++i) {
    T x;
    std::memcpy(&x, from + offsets[i], sizeof x);
    v[i] = x;
  }
  return v;
#endif
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_MASKED_H_
