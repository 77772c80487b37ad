// Transforms of an even number n of real numbers by complex ones of half the
// length; included only by gemm_fourier_rows.h. Each pair of neighbouring real
// numbers (x[2j], x[2j + 1]) stands for the complex number x[2j] + i x[2j + 1].

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_REAL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_REAL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_butterflies.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_transform.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// All arrays are dense. Those of coefficients are read and written in vectors
// from both ends of the indices 0 to n / 2; n is at least 4 times a vector.
template <typename T>
class RealTransform {
 public:
  RealTransform(int64_t n, int sign)
      : half_(n / 2), sign_(Broadcast(static_cast<T>(-sign))) {
    const UnitRoots roots(n);
    for (const auto& [from, to] :
         {std::pair(&roots.cosine, &cosine_), std::pair(&roots.sine, &sine_)}) {
      for (int64_t k = 0; k <= half_ / 2 + kLane; ++k) {
        to->push_back(static_cast<T>((*from)[k]));
      }
    }
  }

  // From half the forward transform of the pairs to coefficients 0 to n / 2 of
  // the real numbers. Element n / 2 of `from` is the same as element 0.
  //
  // The transform of the numbers at even places is the conjugate-symmetric part
  // of `from`, and i times that of the numbers at odd places is the rest. The
  // latter is rotated and added.
  void Split(const ComplexPlanes<T>& from, const ComplexPlanes<T>& to) const {
    for (int64_t k = 0; 2 * k <= half_; k += kLane) {
      const ComplexLanes<T> a = Ascending(from, k), b = Descending(from, k);
      const ComplexLanes<T> even = {a.re + b.re, a.im - b.im};
      const ComplexLanes<T> odd =
          ComplexLanes<T>{a.im + b.im, b.re - a.re}.Rotated(
              Load<Vector<T>>(&cosine_[k]), Load<Vector<T>>(&sine_[k]));
      SetAscending(to, k, {even.re + odd.re, sign_ * (even.im + odd.im)});
      SetDescending(to, k, {even.re - odd.re, sign_ * (odd.im - even.im)});
    }
  }

  // The reverse: from coefficients 0 to n / 2 of real numbers to the transform
  // of the pairs.
  void Merge(const ComplexPlanes<T>& from, const ComplexPlanes<T>& to) const {
    for (int64_t k = 0; 2 * k <= half_; k += kLane) {
      const ComplexLanes<T> a = Ascending(from, k), b = Descending(from, k);
      const ComplexLanes<T> even = {a.re + b.re, a.im - b.im};
      const ComplexLanes<T> odd =
          ComplexLanes<T>{a.re - b.re, a.im + b.im}.Rotated(
              Load<Vector<T>>(&cosine_[k]), sign_ * Load<Vector<T>>(&sine_[k]));
      SetAscending(to, k, {even.re - odd.im, even.im + odd.re});
      SetDescending(to, k, {even.re + odd.im, odd.re - even.im});
    }
  }

 private:
  static constexpr int64_t kLane = kLanes<T>;

  // Lanes k, k + 1, ...
  static ComplexLanes<T> Ascending(const ComplexPlanes<T>& x, int64_t k) {
    return {Load<Vector<T>>(x.re + k), Load<Vector<T>>(x.im + k)};
  }
  // Lanes n / 2 - k, n / 2 - k - 1, ...
  ComplexLanes<T> Descending(const ComplexPlanes<T>& x, int64_t k) const {
    const ComplexLanes<T> lanes = Ascending(x, half_ - k - kLane + 1);
    return {Reversed(lanes.re), Reversed(lanes.im)};
  }
  static void SetAscending(const ComplexPlanes<T>& x, int64_t k,
                           const ComplexLanes<T>& lanes) {
    Store(x.re + k, lanes.re);
    Store(x.im + k, lanes.im);
  }
  void SetDescending(const ComplexPlanes<T>& x, int64_t k,
                     const ComplexLanes<T>& lanes) const {
    SetAscending(x, half_ - k - kLane + 1,
                 {Reversed(lanes.re), Reversed(lanes.im)});
  }

  static Vector<T> Reversed(Vector<T> v) {
    return [v]<int... kI>(std::integer_sequence<int, kI...>) {
      return __builtin_shufflevector(v, v, (kLanes<T> - 1 - kI)...);
    }(std::make_integer_sequence<int, kLanes<T>>());
  }

  int64_t half_;
  Vector<T> sign_;                // -1 for backward transforms
  std::vector<T> cosine_, sine_;  // of 2 pi k / n
};

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_REAL_H_
