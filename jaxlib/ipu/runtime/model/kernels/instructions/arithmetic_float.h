// Simple instructions that exist only for floats or differ for them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_FLOAT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_FLOAT_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
inline constexpr int kMantissaBits = sizeof(T) == 4 ? 23 : 52;
template <typename T>
inline constexpr Bits<T> kSignBit = Bits<T>{1} << (8 * sizeof(T) - 1);
template <typename T>
inline constexpr Bits<T> kExponentBits =
    kSignBit<T> - (Bits<T>{1} << kMantissaBits<T>);

struct Div {
  template <typename V>
  static V Do(V a, V b) {
    return a / b;
  }
};
struct AbsFloat {
  template <typename V>
  static V Do(V a) {
    return BitCast<V>(BitCast<BitsOf<V>>(a) & ~kSignBit<Element<V>>);
  }
};
struct NegateFloat {  // flips the sign of NaN and 0 too
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

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_FLOAT_H_
