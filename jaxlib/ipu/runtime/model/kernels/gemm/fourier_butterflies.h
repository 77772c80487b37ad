// Fourier transforms of a few complex numbers, in registers and in place;
// included only by fourier_transform.h.
//
// All are forward transforms of R terms: X[k] = the sum over j of
// x[j] exp(-2 pi i j k / R). Each lane of a vector belongs to another
// transform.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_BUTTERFLIES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_BUTTERFLIES_H_

#include <cstdint>
#include <numbers>

#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// A complex number in each lane.
template <typename T>
struct ComplexLanes {
  Vector<T> re, im;

  friend ComplexLanes operator+(ComplexLanes a, ComplexLanes b) {
    return {a.re + b.re, a.im + b.im};
  }
  friend ComplexLanes operator-(ComplexLanes a, ComplexLanes b) {
    return {a.re - b.re, a.im - b.im};
  }
  // Times -i.
  ComplexLanes Turned() const { return {im, -re}; }
  // Times c - i s.
  ComplexLanes Rotated(T c, T s) const {
    return Rotated(Broadcast(c), Broadcast(s));
  }
  ComplexLanes Rotated(Vector<T> cosine, Vector<T> sine) const {
    return {MultiplyAdd<T>(sine, im, cosine * re),
            MultiplyAdd<T>(cosine, im, -(sine * re))};
  }
};

template <typename T>
[[gnu::always_inline]] inline void Butterfly2(ComplexLanes<T>* x) {
  const ComplexLanes<T> sum = x[0] + x[1];
  x[1] = x[0] - x[1];
  x[0] = sum;
}

template <typename T>
[[gnu::always_inline]] inline void Butterfly4(ComplexLanes<T>* x) {
  const ComplexLanes<T> a = x[0] + x[2], b = x[0] - x[2];
  const ComplexLanes<T> c = x[1] + x[3], d = (x[1] - x[3]).Turned();
  x[0] = a + c;
  x[1] = b + d;
  x[2] = a - c;
  x[3] = b - d;
}

template <typename T>
[[gnu::always_inline]] inline void Butterfly8(ComplexLanes<T>* x) {
  constexpr T kHalf = static_cast<T>(std::numbers::sqrt2 / 2);
  ComplexLanes<T> even[4] = {x[0], x[2], x[4], x[6]};
  ComplexLanes<T> odd[4] = {x[1], x[3], x[5], x[7]};
  Butterfly4(even);
  Butterfly4(odd);
  odd[1] = odd[1].Rotated(kHalf, kHalf);
  odd[2] = odd[2].Turned();
  odd[3] = odd[3].Rotated(-kHalf, kHalf);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    x[k] = even[k] + odd[k];
    x[k + 4] = even[k] - odd[k];
  }
}

// The transform of an odd number of terms R. The factors of x[j] and x[R - j]
// are conjugates, so x[j] + x[R - j] is multiplied by the cosine and
// x[j] - x[R - j] by the sine; X[k] and X[R - k] share these products. `roots`
// has (cos, sin) of 2 pi j k / R for j and k from 1 to (R - 1) / 2.
template <typename T, int kRadix>
[[gnu::always_inline]] inline void ButterflyOdd(ComplexLanes<T>* x,
                                                const T* roots) {
  constexpr int kHalf = kRadix / 2;
  ComplexLanes<T> sum[kHalf], difference[kHalf];
  const ComplexLanes<T> first = x[0];
#pragma GCC unroll 4
  for (int j = 0; j < kHalf; ++j) {
    sum[j] = x[j + 1] + x[kRadix - 1 - j];
    difference[j] = x[j + 1] - x[kRadix - 1 - j];
    x[0] = x[0] + sum[j];
  }
#pragma GCC unroll 4
  for (int k = 0; k < kHalf; ++k) {
    ComplexLanes<T> a = first, b = {};
#pragma GCC unroll 4
    for (int j = 0; j < kHalf; ++j) {
      const Vector<T> c = Broadcast(roots[2 * (k * kHalf + j)]);
      const Vector<T> s = Broadcast(roots[2 * (k * kHalf + j) + 1]);
      a.re = MultiplyAdd<T>(c, sum[j].re, a.re);
      a.im = MultiplyAdd<T>(c, sum[j].im, a.im);
      b.re = MultiplyAdd<T>(s, difference[j].re, b.re);
      b.im = MultiplyAdd<T>(s, difference[j].im, b.im);
    }
    x[k + 1] = a + b.Turned();
    x[kRadix - 1 - k] = a - b.Turned();
  }
}

// The same for any odd number of terms; sums and differences are kept in
// `pairs` instead of registers.
template <typename T>
void ButterflyOdd(ComplexLanes<T>* x, int radix, const T* roots,
                  ComplexLanes<T>* pairs) {
  const int half = radix / 2;
  const ComplexLanes<T> first = x[0];
  for (int j = 0; j < half; ++j) {
    pairs[2 * j] = x[j + 1] + x[radix - 1 - j];
    pairs[2 * j + 1] = x[j + 1] - x[radix - 1 - j];
    x[0] = x[0] + pairs[2 * j];
  }
  for (int k = 0; k < half; ++k) {
    ComplexLanes<T> a = first, b = {};
    for (int j = 0; j < half; ++j, roots += 2) {
      const Vector<T> c = Broadcast(roots[0]), s = Broadcast(roots[1]);
      a.re = MultiplyAdd<T>(c, pairs[2 * j].re, a.re);
      a.im = MultiplyAdd<T>(c, pairs[2 * j].im, a.im);
      b.re = MultiplyAdd<T>(s, pairs[2 * j + 1].re, b.re);
      b.im = MultiplyAdd<T>(s, pairs[2 * j + 1].im, b.im);
    }
    x[k + 1] = a + b.Turned();
    x[radix - 1 - k] = a - b.Turned();
  }
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_BUTTERFLIES_H_
