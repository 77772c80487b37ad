// What the simple instructions compute, for vectors of any type that they
// exist for. Integers that may overflow come as unsigned ones.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ARITHMETIC_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ARITHMETIC_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd.h"

namespace ipu::model::IPU_SIMD_NS {

// The lanes of a vector as bits.
template <typename V>
using BitsOf = Vector<Bits<Element<V>>, kSize<V>>;

// The flags that a comparison of vectors gives, as register values.
template <typename Mask>
inline Vector<uint32_t, kSize<Mask>> Flags(const Mask& mask) {
  return ConvertLanes<uint32_t>(mask) & 1;
}

struct Add {
  template <typename V>
  static V Do(V a, V b) {
    return a + b;
  }
};
struct Sub {
  template <typename V>
  static V Do(V a, V b) {
    return a - b;
  }
};
struct Mul {
  template <typename V>
  static V Do(V a, V b) {
    return a * b;
  }
};
struct Div {  // floats
  template <typename V>
  static V Do(V a, V b) {
    return a / b;
  }
};
struct Negate {
  template <typename V>
  static V Do(V a) {
    return -a;
  }
};

// Two operations in one pass, each rounded as if it stood alone.
struct MulAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b + c;
  }
};
struct MulSub {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b - c;
  }
};
struct NegMulAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return c - a * b;
  }
};
struct MulMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b * c;
  }
};
struct AddAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a + b + c;
  }
};
struct AddMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return (a + b) * c;
  }
};
struct SubMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return (a - b) * c;
  }
};

// Minimum and maximum of IEEE 754-2019: a NaN wins, and -0 < +0.
struct Max {
  template <typename V>
  static V Do(V a, V b) {
    if constexpr (std::is_integral_v<Element<V>>) {
      return a > b ? a : b;
    } else {
      using B = BitsOf<V>;
      const V both = BitCast<V>(BitCast<B>(a) & BitCast<B>(b));
      const V larger = a > b ? a : (a == b ? both : b);
      return a != a ? a : larger;
    }
  }
};
struct Min {
  template <typename V>
  static V Do(V a, V b) {
    if constexpr (std::is_integral_v<Element<V>>) {
      return a < b ? a : b;
    } else {
      using B = BitsOf<V>;
      const V either = BitCast<V>(BitCast<B>(a) | BitCast<B>(b));
      const V smaller = a < b ? a : (a == b ? either : b);
      return a != a ? a : smaller;
    }
  }
};
struct Clamp {
  template <typename V>
  static V Do(V low, V value, V high) {
    return Min::Do(Max::Do(value, low), high);
  }
};

struct Equal {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a == b);
  }
};
struct NotEqual {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a != b);
  }
};
struct Less {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a < b);
  }
};
struct LessEqual {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a <= b);
  }
};
struct Greater {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a > b);
  }
};
struct GreaterEqual {
  template <typename V>
  static auto Do(V a, V b) {
    return Flags(a >= b);
  }
};

struct Select {
  template <typename Flag, typename V>
  static V Do(Flag flag, V yes, V no) {
    return ConvertLanes<SignedBits<Element<V>>>(
               BitCast<Vector<int32_t, kSize<V>>>(flag)) != 0
               ? yes
               : no;
  }
};

// --- Floats
// -------------------------------------------------------------------

template <typename T>
inline constexpr int kMantissaBits = sizeof(T) == 4 ? 23 : 52;
template <typename T>
inline constexpr Bits<T> kSignBit = Bits<T>{1} << (8 * sizeof(T) - 1);
template <typename T>
inline constexpr Bits<T> kExponentBits =
    kSignBit<T> - (Bits<T>{1} << kMantissaBits<T>);

struct AbsFloat {
  template <typename V>
  static V Do(V a) {
    return BitCast<V>(BitCast<BitsOf<V>>(a) & ~kSignBit<Element<V>>);
  }
};
struct NegateFloat {  // NaN's sign too, and -0
  template <typename V>
  static V Do(V a) {
    return BitCast<V>(BitCast<BitsOf<V>>(a) ^ kSignBit<Element<V>>);
  }
};
struct SignFloat {
  template <typename V>
  static V Do(V a) {
    using T = Element<V>;
    const auto sign = BitCast<BitsOf<V>>(a) & kSignBit<T>;
    const V one = BitCast<V>(sign | BitCast<Bits<T>>(T{1}));
    return a > 0 || a < 0 ? one : a;
  }
};
struct IsFinite {
  template <typename V>
  static auto Do(V a) {
    constexpr auto kExponent = kExponentBits<Element<V>>;
    return Flags((BitCast<BitsOf<V>>(a) & kExponent) != kExponent);
  }
};

// --- Integers
// -----------------------------------------------------------------

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

// Shifts take the count as an unsigned number; one of the width or more leaves
// nothing (or nothing but the sign).
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
#ifdef IPU_AVX512
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
  template <typename V>  // of unsigned elements: MIN stays MIN
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

// x / 0 is all ones, MIN / -1 is MIN.
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
      // A double's quotient of two 32-bit integers, cut, is exact: it is at
      // least 2^-32 below the next integer or is that integer.
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

// As XLA's: repeated squaring with the low 6 bits of the exponent; an exponent
// that is negative as a signed number gives the reciprocal cut to an integer,
// which is 0 but for 1 and -1.
struct PowInteger {
  template <typename V>
  static V Do(V base, V exponent) {
    using T = Element<V>;
    V result = {};
    for (int i = 0; i < kSize<V>; ++i) {
      Bits<T> power = 1;
      Bits<T> square = base[i];
      for (int e = exponent[i] & 63; e != 0; e >>= 1) {
        if (e & 1) power *= square;
        square *= square;
      }
      const bool unit = base[i] == 1 || base[i] == static_cast<T>(-1);
      const bool negative = static_cast<SignedBits<T>>(exponent[i]) < 0;
      result[i] = negative && !unit ? 0 : static_cast<T>(power);
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

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ARITHMETIC_H_
