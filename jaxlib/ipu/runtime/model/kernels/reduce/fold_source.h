// Load policies of folds: how elements are loaded from memory and converted to
// register type T.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_SOURCE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_SOURCE_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd/half.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// Elements of type T, unchanged.
template <typename T>
struct Plain {
  using Item = T;
  static Vector<T> Whole(const T* p) { return Load<Vector<T>>(p); }
  static void Put(T* p, const Vector<T>& v) { Store(p, v); }
  // Loads the first n lanes, those of `mask`; the others are `otherwise`.
  static Vector<T> Some(const T* p, const Mask<T>& mask, int64_t n,
                        Vector<T> otherwise) {
    return mask.Load(p, otherwise);
  }
};

// The squares of elements.
template <typename T>
struct Squares {
  using Item = T;
  static Vector<T> Whole(const T* p) {
    const Vector<T> v = Load<Vector<T>>(p);
    return v * v;
  }
  static Vector<T> Some(const T* p, const Mask<T>& mask, int64_t n,
                        Vector<T> otherwise) {
    const Vector<T> v = mask.Load(p);
    return mask.Select(v * v, otherwise);
  }
};

// 16-bit floats, widened to f32 by kWiden and rounded by kNarrow.
template <Floats (*kWiden)(const Halves&), Halves (*kNarrow)(const Floats&)>
struct Widened {
  using Item = uint16_t;
  static Floats Whole(const uint16_t* p) { return kWiden(Load<Halves>(p)); }
  static void Put(uint16_t* p, const Floats& v) { Store(p, kNarrow(v)); }
  static Floats Some(const uint16_t* p, const Mask<float>& mask, int64_t n,
                     Floats otherwise) {
#if IPU_AVX512
    const __mmask16 first = (1u << n) - 1;
    const Halves halves = (Halves)_mm256_maskz_loadu_epi16(first, p);
#else
    const Halves halves = n == kLanes<float> ? Load<Halves>(p)
                          : n == 0           ? Halves{}
                                             : LoadSome<Halves>(p, n);
#endif
    return mask.Select(kWiden(halves), otherwise);
  }
};
inline Halves NarrowToBf16(const Floats& x) { return Narrow(QuietBf16Bits(x)); }
using Bf16Elements = Widened<FromBf16, NarrowToBf16>;
using F16Elements = Widened<QuietFromF16, QuietF16Bits>;

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_SOURCE_H_
