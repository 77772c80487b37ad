// Vectors of the full width of the instruction set that this variant is
// compiled for. They are the compiler's vector types, so arithmetic,
// comparisons and ?: apply to them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_SIMD_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_SIMD_H_

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// The ABI for returning vectors is irrelevant, because these functions are
// inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
// GCC warns about its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace ipu::model::IPU_SIMD_NS {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define IPU_AVX512 1
inline constexpr int kVectorBytes = 64;
#else
#define IPU_AVX512 0
#ifdef __AVX2__
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
#endif

template <typename T>
inline constexpr int kLanes = kVectorBytes / sizeof(T);

template <typename T, int kN>
struct VectorType {
  typedef T type __attribute__((vector_size(kN * sizeof(T))));
};

// kN elements of type T.
template <typename T, int kN = kLanes<T>>
using Vector = typename VectorType<T, kN>::type;

// The element type and the number of elements of a vector type.
template <typename V>
using Element = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
template <typename V>
inline constexpr int kSize = sizeof(V) / sizeof(Element<V>);

// The unsigned and signed integers of the width of T.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T>
using SignedBits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

template <typename V>
inline V Load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename V>
inline void Store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

// A vector with x in all lanes. GCC makes one broadcast of this, but one move
// per lane of a loop over lanes, if x is in memory.
template <typename V>
inline V Splat(Element<V> x) {
  return x - V{};
}

// Reinterprets the bits.
template <typename To, typename From>
inline To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Loads the first lane and zeros the others.
template <typename V>
inline V LoadOne(const void* from) {
  Element<V> x;
  std::memcpy(&x, from, sizeof x);
  V v = {};
  v[0] = x;
  return v;
}

template <typename V>
inline void StoreOne(void* to, const V& v) {
  const Element<V> x = v[0];
  std::memcpy(to, &x, sizeof x);
}

#if defined(__AVX2__)
// A mask with all bits set in the first n lanes of 4 or 8 bytes.
template <int kLaneBytes>
inline __m256i FirstLanes(int64_t n) {
  if constexpr (kLaneBytes == 8) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n),
                              _mm256_setr_epi64x(0, 1, 2, 3));
  } else {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
}
#endif

// Loads the first n lanes, 0 < n < all, and zeros the others. Reads no memory
// beyond them.
template <typename V>
inline V LoadSome(const void* from, int64_t n) {
  [[maybe_unused]] constexpr int kLaneBytes = sizeof(Element<V>);
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kLaneBytes == 4) {
    return BitCast<V>(
        _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), from));
  } else if constexpr (sizeof(V) == 64 && kLaneBytes == 8) {
    return BitCast<V>(
        _mm512_maskz_loadu_epi64((__mmask8)((1u << n) - 1), from));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && kLaneBytes == 4) {
    return BitCast<V>(
        _mm256_maskload_epi32(static_cast<const int*>(from), FirstLanes<4>(n)));
  } else if constexpr (sizeof(V) == 32 && kLaneBytes == 8) {
    return BitCast<V>(_mm256_maskload_epi64(static_cast<const long long*>(from),
                                            FirstLanes<8>(n)));
  }
#endif
  V v = {};
  std::memcpy(&v, from, n * sizeof(Element<V>));
  return v;
}

template <typename V>
inline void StoreSome(void* to, int64_t n, const V& v) {
  [[maybe_unused]] constexpr int kLaneBytes = sizeof(Element<V>);
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kLaneBytes == 4) {
    return _mm512_mask_storeu_epi32(to, (__mmask16)((1u << n) - 1),
                                    BitCast<__m512i>(v));
  } else if constexpr (sizeof(V) == 64 && kLaneBytes == 8) {
    return _mm512_mask_storeu_epi64(to, (__mmask8)((1u << n) - 1),
                                    BitCast<__m512i>(v));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && kLaneBytes == 4) {
    return _mm256_maskstore_epi32(static_cast<int*>(to), FirstLanes<4>(n),
                                  BitCast<__m256i>(v));
  } else if constexpr (sizeof(V) == 32 && kLaneBytes == 8) {
    return _mm256_maskstore_epi64(static_cast<long long*>(to), FirstLanes<8>(n),
                                  BitCast<__m256i>(v));
  }
#endif
  std::memcpy(to, &v, n * sizeof(Element<V>));
}

// a * b + c, of floating-point numbers fused where the processor supports it.
template <typename V>
inline V Fma(const V& a, const V& b, const V& c) {
  [[maybe_unused]] constexpr bool kF32 = std::is_same_v<Element<V>, float>;
  [[maybe_unused]] constexpr bool kF64 = std::is_same_v<Element<V>, double>;
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kF32) {
    return BitCast<V>(_mm512_fmadd_ps(BitCast<__m512>(a), BitCast<__m512>(b),
                                      BitCast<__m512>(c)));
  } else if constexpr (sizeof(V) == 64 && kF64) {
    return BitCast<V>(_mm512_fmadd_pd(BitCast<__m512d>(a), BitCast<__m512d>(b),
                                      BitCast<__m512d>(c)));
  }
#endif
#ifdef __FMA__
  if constexpr (sizeof(V) == 32 && kF32) {
    return BitCast<V>(_mm256_fmadd_ps(BitCast<__m256>(a), BitCast<__m256>(b),
                                      BitCast<__m256>(c)));
  } else if constexpr (sizeof(V) == 32 && kF64) {
    return BitCast<V>(_mm256_fmadd_pd(BitCast<__m256d>(a), BitCast<__m256d>(b),
                                      BitCast<__m256d>(c)));
  }
#endif
  return a * b + c;
}

// The square root, correctly rounded.
template <typename V>
inline V SquareRoot(const V& a) {
  static_assert(std::is_floating_point_v<Element<V>>);
  [[maybe_unused]] constexpr bool kF32 = std::is_same_v<Element<V>, float>;
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kF32) {
    return BitCast<V>(_mm512_sqrt_ps(BitCast<__m512>(a)));
  } else if constexpr (sizeof(V) == 64) {
    return BitCast<V>(_mm512_sqrt_pd(BitCast<__m512d>(a)));
  }
#endif
#ifdef __AVX__
  if constexpr (sizeof(V) == 32 && kF32) {
    return BitCast<V>(_mm256_sqrt_ps(BitCast<__m256>(a)));
  } else if constexpr (sizeof(V) == 32) {
    return BitCast<V>(_mm256_sqrt_pd(BitCast<__m256d>(a)));
  }
#endif
  V root;
  for (int i = 0; i < kSize<V>; ++i) root[i] = std::sqrt(a[i]);
  return root;
}

// x, but not below `least`, which is not 0; keeps NaN. GCC makes a comparison
// and a selection of ?:, which take longer.
template <typename V>
inline V AtLeast(const V& x, Element<V> least) {
  [[maybe_unused]] constexpr bool kF32 = std::is_same_v<Element<V>, float>;
  const V bound = Splat<V>(least);
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kF32) {
    return BitCast<V>(
        _mm512_max_ps(BitCast<__m512>(bound), BitCast<__m512>(x)));
  } else if constexpr (sizeof(V) == 64) {
    return BitCast<V>(
        _mm512_max_pd(BitCast<__m512d>(bound), BitCast<__m512d>(x)));
  }
#endif
#ifdef __AVX__
  if constexpr (sizeof(V) == 32 && kF32) {
    return BitCast<V>(
        _mm256_max_ps(BitCast<__m256>(bound), BitCast<__m256>(x)));
  } else if constexpr (sizeof(V) == 32) {
    return BitCast<V>(
        _mm256_max_pd(BitCast<__m256d>(bound), BitCast<__m256d>(x)));
  }
#endif
  return x < bound ? bound : x;
}

// Whether any lane of a comparison is true.
template <typename Mask>
inline bool Any(const Mask& mask) {
#if IPU_AVX512
  if constexpr (sizeof(Mask) == 64) {
    const __m512i m = BitCast<__m512i>(mask);
    return _mm512_test_epi64_mask(m, m) != 0;
  }
#endif
#ifdef __AVX__
  if constexpr (sizeof(Mask) == 32) {
    const __m256i m = BitCast<__m256i>(mask);
    return !_mm256_testz_si256(m, m);
  }
#endif
  bool any = false;
  for (int i = 0; i < kSize<Mask>; ++i) any |= mask[i] != 0;
  return any;
}

#ifdef __AVX2__
// Compilers generate poor code for truncating and widening integer lanes.
template <typename To, typename V>
inline To CutLanes(const V& v) {  // 32 bits to 16 or 8
  constexpr bool kHalf = sizeof(Element<To>) == 2;
#if IPU_AVX512
  if constexpr (kHalf) {
    return BitCast<To>(_mm512_cvtepi32_epi16(BitCast<__m512i>(v)));
  } else {
    return BitCast<To>(_mm512_cvtepi32_epi8(BitCast<__m512i>(v)));
  }
#else
  constexpr int kFirst = kHalf ? 0x05040100 : 0x0c080400;
  constexpr int kSecond = kHalf ? 0x0d0c0908 : -1;
  const __m256i kept = _mm256_shuffle_epi8(
      BitCast<__m256i>(v),
      _mm256_setr_epi32(kFirst, kSecond, -1, -1, kFirst, kSecond, -1, -1));
  if constexpr (kHalf) {
    return BitCast<To>(
        _mm256_castsi256_si128(_mm256_permute4x64_epi64(kept, 0x08)));
  } else {
    return BitCast<To>(_mm256_extract_epi64(
        _mm256_permutevar8x32_epi32(kept,
                                    _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0)),
        0));
  }
#endif
}

template <typename To, typename V>
inline To WidenLanes(const V& v) {  // 16 or 8 bits to 32
  using From = Element<V>;
  __m128i bytes = {};
  std::memcpy(&bytes, &v, std::min(sizeof v, sizeof bytes));
#if IPU_AVX512
  if constexpr (std::is_same_v<From, uint8_t>) {
    return BitCast<To>(_mm512_cvtepu8_epi32(bytes));
  } else if constexpr (std::is_same_v<From, int8_t>) {
    return BitCast<To>(_mm512_cvtepi8_epi32(bytes));
  } else if constexpr (std::is_same_v<From, uint16_t>) {
    return BitCast<To>(_mm512_cvtepu16_epi32(BitCast<__m256i>(v)));
  } else {
    return BitCast<To>(_mm512_cvtepi16_epi32(BitCast<__m256i>(v)));
  }
#else
  if constexpr (std::is_same_v<From, uint8_t>) {
    return BitCast<To>(_mm256_cvtepu8_epi32(bytes));
  } else if constexpr (std::is_same_v<From, int8_t>) {
    return BitCast<To>(_mm256_cvtepi8_epi32(bytes));
  } else if constexpr (std::is_same_v<From, uint16_t>) {
    return BitCast<To>(_mm256_cvtepu16_epi32(bytes));
  } else {
    return BitCast<To>(_mm256_cvtepi16_epi32(bytes));
  }
#endif
}
#endif

// Converts lane by lane, as C does.
template <typename T, typename V>
inline Vector<T, kSize<V>> ConvertLanes(const V& v) {
  using To = Vector<T, kSize<V>>;
#ifdef __AVX2__
  using From = Element<V>;
  if constexpr (std::is_integral_v<T> && std::is_integral_v<From> &&
                kSize<V> == kLanes<uint32_t>) {
    if constexpr (sizeof(From) == 4 && sizeof(T) < 4) return CutLanes<To>(v);
    if constexpr (sizeof(From) < 4 && sizeof(T) == 4) return WidenLanes<To>(v);
  }
#endif
  return __builtin_convertvector(v, To);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_SIMD_H_
