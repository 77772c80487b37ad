// Fast Fourier transforms of moderate length. Each lane of a vector belongs to
// another transform. Included only by gemm_fourier.h.
//
// This is Stockham's algorithm: each stage reads all terms and writes them to
// another buffer in the order in which the next stage reads them, so that the
// last stage writes the coefficients in their natural order.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_TRANSFORM_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_TRANSFORM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_butterflies.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// exp(2 pi i k / n) for k below n.
struct UnitRoots {
  explicit UnitRoots(int64_t n) : cosine(n), sine(n) {
    for (int64_t k = 0; k < n; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) /
                           static_cast<double>(n);
      cosine[k] = std::cos(angle);
      sine[k] = std::sin(angle);
    }
  }

  std::vector<double> cosine, sine;
};

// Complex terms in two arrays: a vector of real and a vector of imaginary parts
// for each term. Consecutive vectors of an array are `step` elements apart.
template <typename T>
struct ComplexPlanes {
  T* re;
  T* im;
  int64_t step;

  ComplexLanes<T> At(int64_t i) const {
    return {Load<Vector<T>>(re + i * step), Load<Vector<T>>(im + i * step)};
  }
  void Set(int64_t i, const ComplexLanes<T>& x) const {
    Store(re + i * step, x.re);
    Store(im + i * step, x.im);
  }
  // The terms that lie so many elements further on.
  ComplexPlanes Moved(int64_t by) const { return {re + by, im + by, step}; }
  // The same terms with real and imaginary parts exchanged. If both input and
  // output of a transform are exchanged, its exponent has the other sign.
  ComplexPlanes Exchanged() const { return {im, re, step}; }
};

template <typename T>
class FourierTransform {
 public:
  // Whether this class can transform n terms: no prime factor is too large.
  static bool Transforms(int64_t n) {
    const std::vector<int> radices = Radices(n);
    return *std::max_element(radices.begin(), radices.end()) <= kLargestPrime;
  }

  // All terms are multiplied by `scale`.
  explicit FourierTransform(int64_t n, double scale = 1)
      : scale_(static_cast<T>(scale)) {
    int64_t done = 1;
    for (int radix : Radices(n)) {
      stages_.push_back(MakeStage(radix, n / done, done));
      done *= radix;
    }
  }

  size_t stages() const { return stages_.size(); }

  // Writes the transform of `in` to `out`. With more than one stage it
  // overwrites `work`, with more than two also `other`, which may be `in`.
  //
  // Transforms several vectors of each term if there are `vectors`, which are
  // next to each other in all arrays.
  void Run(const ComplexPlanes<T>& in, const ComplexPlanes<T>& work,
           const ComplexPlanes<T>& other, const ComplexPlanes<T>& out,
           int64_t vectors = 1) const {
    const ComplexPlanes<T>* from = &in;
    const ComplexPlanes<T>* next = &work;
    const ComplexPlanes<T>* after = &other;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const ComplexPlanes<T>* const to = i + 1 == stages_.size() ? &out : next;
      RunStage(stages_[i], *from, *to, vectors, i == 0 ? scale_ : T{1});
      from = to;
      std::swap(next, after);
    }
  }

 private:
  // A limit of a stage's stack; ops/fft.py multiplies by no larger matrix
  // (_DIRECT_PRIME).
  static constexpr int kLargestPrime = 127;

  struct Stage {
    int radix;
    int64_t groups;           // product of the later stages' radices
    int64_t together;         // product of the earlier stages' radices
    std::vector<T> roots;     // for ButterflyOdd
    std::vector<T> rotation;  // twiddle factors (cos, sin) by group and term
  };

  // The radices of the stages: first powers of two, as large as possible, which
  // need the fewest operations, then odd primes.
  static std::vector<int> Radices(int64_t n) {
    std::vector<int> radices;
    const auto take = [&](int radix) {
      radices.push_back(radix);
      n /= radix;
    };
    while (n % 8 == 0 && n % 32 != 16) take(8);
    while (n % 4 == 0) take(4);
    if (n % 2 == 0) take(2);
    for (int radix = 3; n > 1; radix += 2) {
      while (n % radix == 0) take(radix);
    }
    if (radices.empty()) radices.push_back(1);
    return radices;
  }

  static Stage MakeStage(int radix, int64_t length, int64_t done) {
    Stage stage{radix, length / radix, done, {}, {}};
    const auto add = [](const UnitRoots& from, int64_t i, std::vector<T>& to) {
      to.push_back(static_cast<T>(from.cosine[i]));
      to.push_back(static_cast<T>(from.sine[i]));
    };
    const UnitRoots of_radix(radix), of_length(length);
    if (radix % 2 == 1) {
      for (int k = 1; k <= radix / 2; ++k) {
        for (int j = 1; j <= radix / 2; ++j) {
          add(of_radix, j * k % radix, stage.roots);
        }
      }
    }
    for (int64_t p = 0; p < stage.groups; ++p) {
      for (int r = 1; r < radix; ++r) {
        add(of_length, p * r, stage.rotation);
      }
    }
    return stage;
  }

  static void RunStage(const Stage& stage, const ComplexPlanes<T>& in,
                       const ComplexPlanes<T>& out, int64_t vectors, T scale) {
    switch (stage.radix) {
      case 2:
        return RunStage<2>(stage, in, out, vectors, scale);
      case 3:
        return RunStage<3>(stage, in, out, vectors, scale);
      case 4:
        return RunStage<4>(stage, in, out, vectors, scale);
      case 5:
        return RunStage<5>(stage, in, out, vectors, scale);
      case 7:
        return RunStage<7>(stage, in, out, vectors, scale);
      case 8:
        return RunStage<8>(stage, in, out, vectors, scale);
      default:
        return RunStage<0>(stage, in, out, vectors, scale);
    }
  }

  // kRadix is 0 for any odd radix.
  template <int kRadix>
  static void RunStage(const Stage& stage, const ComplexPlanes<T>& in,
                       const ComplexPlanes<T>& out, int64_t vectors, T scale) {
    constexpr int kSize = kRadix == 0 ? kLargestPrime : kRadix;
    const int radix = kRadix == 0 ? stage.radix : kRadix;
    const T* const roots = stage.roots.data();
    const T* rotation = stage.rotation.data();
    // Copies, which no store changes.
    const int64_t groups = stage.groups, together = stage.together;
    const int64_t in_step = in.step, out_step = out.step;
    const int64_t in_gap = together * groups * in_step;
    const int64_t out_gap = together * out_step;
    const Vector<T> factor = Broadcast(scale);
    for (int64_t p = 0; p < groups; ++p) {
      for (int64_t q = 0; q < together; ++q) {
        const int64_t in_first = (q + together * p) * in_step;
        const int64_t out_first = (q + together * radix * p) * out_step;
        for (int64_t v = 0; v < vectors; ++v) {
          const T* const re = in.re + in_first + v * kLanes<T>;
          const T* const im = in.im + in_first + v * kLanes<T>;
          T* const out_re = out.re + out_first + v * kLanes<T>;
          T* const out_im = out.im + out_first + v * kLanes<T>;
          ComplexLanes<T> x[kSize];
#pragma GCC unroll 8
          for (int r = 0; r < radix; ++r) {
            x[r] = {Load<Vector<T>>(re + r * in_gap),
                    Load<Vector<T>>(im + r * in_gap)};
          }
          if (scale != 1) {
#pragma GCC unroll 8
            for (int r = 0; r < radix; ++r) {
              x[r] = {factor * x[r].re, factor * x[r].im};
            }
          }
          if constexpr (kRadix == 0) {
            ComplexLanes<T> pairs[kSize];
            ButterflyOdd(x, radix, roots, pairs);
          } else if constexpr (kRadix == 2) {
            Butterfly2(x);
          } else if constexpr (kRadix == 4) {
            Butterfly4(x);
          } else if constexpr (kRadix == 8) {
            Butterfly8(x);
          } else {
            ButterflyOdd<T, kRadix>(x, roots);
          }
#pragma GCC unroll 8
          for (int r = 0; r < radix; ++r) {
            if (p > 0 && r > 0) {
              x[r] = x[r].Rotated(rotation[2 * r - 2], rotation[2 * r - 1]);
            }
            Store(out_re + r * out_gap, x[r].re);
            Store(out_im + r * out_gap, x[r].im);
          }
        }
      }
      rotation += 2 * (radix - 1);
    }
  }

  T scale_;
  std::vector<Stage> stages_;
};

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_TRANSFORM_H_
