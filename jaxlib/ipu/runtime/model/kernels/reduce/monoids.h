// The monoids of reductions and scatters (isa.ReduceKind): the identity, and
// the operation on two elements of register type T or on vectors V of them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_MONOIDS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_MONOIDS_H_

#include <limits>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

struct Sum {
  template <typename T>
  static constexpr T kIdentity = 0;
  template <typename T, typename V>
  static V Apply(V a, V b) {
    return a + b;
  }
};
struct Multiplied {
  template <typename T>
  static constexpr T kIdentity = 1;
  template <typename T, typename V>
  static V Apply(V a, V b) {
    return a * b;
  }
};
// NaN propagates: a NaN in `a` is kept, and one in `b` is returned by x86's max
// and min. Of -0 and +0 either may be returned.
template <bool kLargest>
struct Extreme {
  template <typename T>
  static constexpr T kHighest =
      std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                  : std::numeric_limits<T>::max();
  template <typename T>
  static constexpr T kLowest =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                  : std::numeric_limits<T>::min();
  template <typename T>
  static constexpr T kIdentity = kLargest ? kLowest<T> : kHighest<T>;
  template <typename T, typename V>
  static V Apply(V a, V b) {
#if IPU_AVX512
    if constexpr (std::is_same_v<V, Vector<float>>) {
      const __mmask16 number = _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q);
      return kLargest ? _mm512_mask_max_ps(a, number, a, b)
                      : _mm512_mask_min_ps(a, number, a, b);
    } else if constexpr (std::is_same_v<V, Vector<double>>) {
      const __mmask8 number = _mm512_cmp_pd_mask(a, a, _CMP_ORD_Q);
      return kLargest ? _mm512_mask_max_pd(a, number, a, b)
                      : _mm512_mask_min_pd(a, number, a, b);
    }
#endif
    const V extreme = (kLargest ? a > b : a < b) ? a : b;
    if constexpr (!std::is_floating_point_v<T>) return extreme;
    return a == a ? extreme : a;
  }
};
using Largest = Extreme<true>;
using Smallest = Extreme<false>;
struct BitAnd {
  template <typename T>
  static constexpr T kIdentity = ~T{0};
  template <typename T, typename V>
  static V Apply(V a, V b) {
    return a & b;
  }
};
struct BitOr {
  template <typename T>
  static constexpr T kIdentity = 0;
  template <typename T, typename V>
  static V Apply(V a, V b) {
    return a | b;
  }
};
struct BitXor {
  template <typename T>
  static constexpr T kIdentity = 0;
  template <typename T, typename V>
  static V Apply(V a, V b) {
    return a ^ b;
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_MONOIDS_H_
