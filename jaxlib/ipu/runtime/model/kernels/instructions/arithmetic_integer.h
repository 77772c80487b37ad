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

// The products of the even lanes of 32-bit integers.
template <typename V>
auto MulEven(V a, V b) {
  constexpr bool kSigned = std::is_signed_v<Element<V>>;
  using U = Vector<uint64_t, kSize<V> / 2>;
#if IPU_AVX512
  const auto x = BitCast<__m512i>(a), y = BitCast<__m512i>(b);
  return BitCast<U>(kSigned ? _mm512_mul_epi32(x, y) : _mm512_mul_epu32(x, y));
#elif defined(__AVX2__)
  const auto x = BitCast<__m256i>(a), y = BitCast<__m256i>(b);
  return BitCast<U>(kSigned ? _mm256_mul_epi32(x, y) : _mm256_mul_epu32(x, y));
#else
  using Wide = std::conditional_t<kSigned, int64_t, uint64_t>;
  using W = Vector<Wide, kSize<V> / 2>;
  const W x = BitCast<W>(BitCast<U>(a) << 32);
  const W y = BitCast<W>(BitCast<U>(b) << 32);
  return BitCast<U>((x >> 32) * (y >> 32));
#endif
}

// The high half of a product with a number that is the same in all lanes.
struct MulHigh {
  template <typename V>
  static V Do(V a, V b) {
    if constexpr (sizeof(Element<V>) == 4) {
      return Of32(a, b);
    } else {
      return Of64(a, b);
    }
  }

 private:
  template <typename V>
  static V Of64(V a, V b) {
    using U = Vector<uint64_t, kSize<V>>;
    const U x = BitCast<U>(a), y = BitCast<U>(b), kLow = U{} + 0xffffffff;
    const U x_high = x >> 32, y_high = y >> 32;
    const U carried = Product(x_high, y) + (Product(x, y) >> 32);
    const U middle = Product(x, y_high) + (carried & kLow);
    const U high = Product(x_high, y_high) + (carried >> 32) + (middle >> 32);
    if constexpr (std::is_signed_v<Element<V>>) {
      return BitCast<V>(high - (BitCast<U>(a < 0) & y) -
                        (BitCast<U>(b < 0) & x));
    } else {
      return high;
    }
  }

  template <typename V>
  static V Of32(V a, V b) {
    using U = Vector<uint64_t, kSize<V> / 2>;
    const U even = MulEven(a, b) >> 32;
    const U odd = MulEven(BitCast<V>(BitCast<U>(a) >> 32), b);
#if !IPU_AVX512 && defined(__AVX2__)
    return BitCast<V>(_mm256_blend_epi32(BitCast<__m256i>(even),
                                         BitCast<__m256i>(odd), 0xaa));
#else
    return BitCast<V>(even | (odd & ~uint64_t{0xffffffff}));
#endif
  }

  // Of the low halves.
  template <typename U>
  static U Product(U a, U b) {
    using Halves = Vector<uint32_t, 2 * kSize<U>>;
    return MulEven(BitCast<Halves>(a), BitCast<Halves>(b));
  }
};

// Division by a constant, given its reciprocal and a shift, as found by
// program::DivideByMultiplying.
struct DivideBy {
  template <typename V, typename U>
  static V Do(V a, V reciprocal, U shift) {
    const U high = BitCast<U>(MulHigh::Do(a, reciprocal)), x = BitCast<U>(a);
    if constexpr (std::is_signed_v<Element<V>>) {
      const V floor = BitCast<V>(high + x) >> BitCast<V>(shift);
      return BitCast<V>(BitCast<U>(floor) + (x >> (kWidth<V> - 1)));
    } else {
      return (high + ((x - high) >> 1)) >> shift;  // the sum may not fit
    }
  }
};
struct RemainderBy {
  template <typename V, typename U>
  static V Do(V a, V reciprocal, V divisor, U shift) {
    const U quotient = BitCast<U>(DivideBy::Do(a, reciprocal, shift));
    return BitCast<V>(BitCast<U>(a) - quotient * BitCast<U>(divisor));
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
