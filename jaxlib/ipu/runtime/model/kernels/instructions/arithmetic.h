// Simple instructions for both floats and integers, on vectors. Integer
// operations that may overflow take unsigned elements, so that they wrap.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_H_

#include <cstdint>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

// The unsigned integer vector with the same lanes as V.
template <typename V>
using BitsOf = Vector<Bits<Element<V>>, kSize<V>>;

// Converts the mask that a comparison of vectors gives to register values, 0 or
// 1.
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

// minimum and maximum of IEEE 754-2019: NaN propagates, and -0 < +0.
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

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_ARITHMETIC_H_
