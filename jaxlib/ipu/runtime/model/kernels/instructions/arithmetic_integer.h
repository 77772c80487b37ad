// Simple instructions that exist only for integers or differ for them. Those
// that may overflow take unsigned elements, so that they wrap.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_INTEGER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_INTEGER_H_

#include <cstdint>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic.h"

namespace ipu::model::IPU_SIMD_NS {

struct Negate {
  template <typename V>
  static V Do(V a) {
    return -a;
  }
};
struct Not {
  template <typename V>
  static V Do(V a) {
    return ~a;
  }
};
struct And {
  template <typename V>
  static V Do(V a, V b) {
    return a & b;
  }
};
struct Or {
  template <typename V>
  static V Do(V a, V b) {
    return a | b;
  }
};
struct Xor {
  template <typename V>
  static V Do(V a, V b) {
    return a ^ b;
  }
};

// Shift counts are unsigned. A count of the width or more gives 0, or copies of
// the sign bit for an arithmetic right shift.
template <typename V>
inline constexpr int kWidth = 8 * sizeof(Element<V>);

struct ShiftLeft {
  template <typename V>
  static V Do(V a, V n) {
    return n < kWidth<V> ? a << (n & (kWidth<V> - 1)) : V{};
  }
};
struct ShiftRightLogical {
  template <typename V>
  static V Do(V a, V n) {
    return n < kWidth<V> ? a >> (n & (kWidth<V> - 1)) : V{};
  }
};
struct ShiftRightArithmetic {
  template <typename V>
  static V Do(V a, V n) {
    using S = Vector<SignedBits<Element<V>>, kSize<V>>;
    const V most = V{} + (kWidth<V> - 1);
    const V count = n < most ? n : most;
    return BitCast<V>(BitCast<S>(a) >> BitCast<S>(count));
  }
};
struct RotateLeft {
  template <typename V>
  static V Do(V a, V n) {  // 0 < n < width
#if IPU_AVX512
    if constexpr (sizeof(V) == 64 && sizeof(Element<V>) == 4) {
      return BitCast<V>(
          _mm512_rolv_epi32(BitCast<__m512i>(a), BitCast<__m512i>(n)));
    }
#endif
    return a << n | a >> (kWidth<V> - n);
  }
};
struct RotateXor {
  template <typename V>
  static V Do(V a, V b, V n) {
    return RotateLeft::Do(a, n) ^ b;
  }
};

struct AbsSigned {
  template <typename V>  // unsigned elements; the minimum is unchanged
  static V Do(V a) {
    using S = Vector<SignedBits<Element<V>>, kSize<V>>;
    const V sign = BitCast<V>(BitCast<S>(a) >> (kWidth<V> - 1));
    return (a ^ sign) - sign;
  }
};
struct SignInteger {
  template <typename V>
  static V Do(V a) {
    return BitCast<V>((a < 0) - (a > 0));
  }
};
struct Identity {
  template <typename V>
  static V Do(V a) {
    return a;
  }
};

// x / 0 is -1 (all bits set); MIN / -1 is MIN.
template <typename T>
inline T DivideInteger(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(-static_cast<Bits<T>>(a));
  }
  return a / b;
}
// x % 0 is x, MIN % -1 is 0.
template <typename T>
inline T RemainderInteger(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return a % b;
}

struct DivInteger {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a, V b) {
    if constexpr (sizeof(Element<V>) == 4) {
      // The truncated double quotient of two 32-bit integers is exact: the
      // quotient is an integer or at least 2^-32 below the next one.
      const auto quotient = ConvertLanes<double>(a) / ConvertLanes<double>(b);
      using Wide = Vector<int64_t, kSize<V>>;
      const V cut =
          ConvertLanes<Element<V>>(__builtin_convertvector(quotient, Wide));
      return b == 0 ? ~V{} : cut;
    } else {
      for (int i = 0; i < kSize<V>; ++i) a[i] = DivideInteger(a[i], b[i]);
      return a;
    }
  }
};
struct RemInteger {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a, V b) {
    if constexpr (sizeof(Element<V>) == 4) {
      using U = BitsOf<V>;
      const U quotient = BitCast<U>(DivInteger::Do(a, b));
      return b == 0 ? a : BitCast<V>(BitCast<U>(a) - quotient * BitCast<U>(b));
    } else {
      for (int i = 0; i < kSize<V>; ++i) a[i] = RemainderInteger(a[i], b[i]);
      return a;
    }
  }
};

// The high half of a product of twice the width.
struct MulHigh {
  template <typename V>
  static V Do(V a, V b) {
    using T = Element<V>;
    if constexpr (sizeof(T) == 4) {
      using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      using W = Vector<Wide, kSize<V> / 2>;
      const W odd_a = BitCast<W>(a) >> 32, odd_b = BitCast<W>(b) >> 32;
      const auto even = BitCast<Vector<uint64_t, kSize<V> / 2>>(Even(a, b));
      const auto odd = BitCast<Vector<uint64_t, kSize<V> / 2>>(
          Even(BitCast<V>(odd_a), BitCast<V>(odd_b)));
      return BitCast<V>(even >> 32 | (odd >> 32 << 32));
    } else {
      using Wide =
          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      for (int i = 0; i < kSize<V>; ++i) {
        a[i] = static_cast<T>(static_cast<Wide>(a[i]) * b[i] >> 64);
      }
      return a;
    }
  }

 private:
  // The products of the even lanes.
  template <typename V>
  static auto Even(V a, V b) {
    constexpr bool kSigned = std::is_signed_v<Element<V>>;
    using Wide = std::conditional_t<kSigned, int64_t, uint64_t>;
    using W = Vector<Wide, kSize<V> / 2>;
#if IPU_AVX512
    const auto x = BitCast<__m512i>(a), y = BitCast<__m512i>(b);
    return BitCast<W>(kSigned ? _mm512_mul_epi32(x, y)
                              : _mm512_mul_epu32(x, y));
#elif defined(__AVX2__)
    const auto x = BitCast<__m256i>(a), y = BitCast<__m256i>(b);
    return BitCast<W>(kSigned ? _mm256_mul_epi32(x, y)
                              : _mm256_mul_epu32(x, y));
#else
    const W x = BitCast<W>(a) << 32, y = BitCast<W>(b) << 32;
    return (x >> 32) * (y >> 32);
#endif
  }
};

// Repeated squaring. A negative exponent gives the reciprocal truncated to an
// integer, which is 0 except for bases 1 and -1; the powers of those depend on
// the exponent's lowest bit only.
struct PowInteger {
  template <typename V>
  static V Do(V base, V exponent) {
    using T = Element<V>;
    V result = {};
    for (int i = 0; i < kSize<V>; ++i) {
      Bits<T> power = 1;
      Bits<T> square = base[i];
      for (Bits<T> e = exponent[i]; e != 0; e >>= 1) {
        if (e & 1) power *= square;
        square *= square;
      }
      const bool vanishes = std::is_signed_v<T> && exponent[i] < T(0) &&
                            base[i] != 1 && base[i] != static_cast<T>(-1);
      result[i] = vanishes ? 0 : static_cast<T>(power);
    }
    return result;
  }
};

struct PopCount {
  template <typename V>  // unsigned
  static V Do(V a) {
    for (int i = 0; i < kSize<V>; ++i) a[i] = __builtin_popcountll(a[i]);
    return a;
  }
};
struct CountLeadingZeros {
  template <typename V>  // unsigned
  static V Do(V a) {
    for (int i = 0; i < kSize<V>; ++i) {
      a[i] = a[i] == 0 ? kWidth<V> : __builtin_clzll(a[i]) - (64 - kWidth<V>);
    }
    return a;
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_INTEGER_H_
