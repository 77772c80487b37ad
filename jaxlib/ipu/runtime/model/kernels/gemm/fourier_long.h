// Fourier transforms of long rows of complex numbers; included only by
// gemm_fourier_rows.h.
//
// A transform of length n = a * b takes two steps: with j = b * j1 + j2 and
// k = k1 + a * k2, term j goes through a transform of length a over j1, a
// rotation by exp(-2 pi i j2 k1 / n), and a transform of length b over j2
// (Bailey's four steps). Lanes are columns of the row: neighbouring j2 in the
// first step, neighbouring k1 in the second. Between them blocks are transposed
// in the first-level cache, so the row itself is read and written twice.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_LONG_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_LONG_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_transform.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

template <typename T>
class LongFourierTransform {
 public:
  // Whether this class can transform n terms: they have two factors that fill
  // the lanes of a vector and are not too long.
  static bool Transforms(int64_t n) { return FirstFactor(n) != 0; }

  // How many lanes there are for each that is needed.
  static double Lanes(int64_t n) { return Lanes(n, FirstFactor(n)) / 2; }

  // All coefficients are multiplied by `scale`.
  LongFourierTransform(int64_t n, double scale)
      : a_(FirstFactor(n)), b_(n / a_), first_(a_), second_(b_) {
    const UnitRoots roots(n);
    rotation_.reserve(2 * Blocks(b_) * a_ * kWidth);
    for (int64_t i = 0; i < Blocks(b_); ++i) {
      const int64_t column = Start(i, b_);
      for (int64_t k = 0; k < a_; ++k) {
        for (const auto& from : {&roots.cosine, &roots.sine}) {
          for (int64_t j = column; j < column + kWidth; ++j) {
            rotation_.push_back(static_cast<T>(scale * (*from)[j * k]));
          }
        }
      }
    }
  }

  // The elements that `middle` takes in the following.
  int64_t MiddleSize() const { return 2 * MiddlePlane(); }
  // Blocks of the two steps; those of each step are independent.
  int64_t first_blocks() const { return Blocks(b_); }
  int64_t second_blocks() const { return Blocks(a_); }
  // The elements of `buffer` in the following.
  int64_t BufferSize() const { return 4 * BufferPlane(); }

  // Blocks [begin, end) of the first step. Arrays of terms, and below of
  // coefficients, are dense.
  void RunFirst(const ComplexPlanes<T>& terms, T* middle, int64_t begin,
                int64_t end, T* buffer) const {
    const ComplexPlanes<T> work = Buffer(buffer, 0), other = Buffer(buffer, 1);
    const ComplexPlanes<T>& out = first_.stages() % 2 == 1 ? work : other;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = Start(i, b_);
      first_.Run({terms.re + column, terms.im + column, b_}, work, other, out,
                 kVectors);
      Rotate(out, &rotation_[2 * i * a_ * kWidth]);
      T* const to = middle + column * MiddleStep();
      TransposeRun(out.re, kWidth, a_, kWidth, to, MiddleStep());
      TransposeRun(out.im, kWidth, a_, kWidth, to + MiddlePlane(),
                   MiddleStep());
    }
  }

  // Blocks [begin, end) of the second step.
  void RunSecond(T* middle, const ComplexPlanes<T>& to, int64_t begin,
                 int64_t end, T* buffer) const {
    const ComplexPlanes<T> work = Buffer(buffer, 0), other = Buffer(buffer, 1);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = Start(i, a_);
      const ComplexPlanes<T> in = {middle + row, middle + MiddlePlane() + row,
                                   MiddleStep()};
      second_.Run(in, work, other, {to.re + row, to.im + row, a_}, kVectors);
    }
  }

 private:
  static constexpr int64_t kLane = kLanes<T>;
  static constexpr int64_t kVectors = 64 / kVectorBytes;
  static constexpr int64_t kWidth = kVectors * kLane;
  // A guess: the planes of a block, of so many lines of 64 bytes, take a part
  // of the second-level cache.
  static constexpr int64_t kLongestFactor = 1024;

  // The factor of which the fewest lanes compute what others do, too; of
  // several, the one that is nearest to the square root.
  static int64_t FirstFactor(int64_t n) {
    int64_t best = 0;
    for (int64_t a = kWidth; a * a <= n; ++a) {
      const int64_t b = n / a;
      if (n % a == 0 && b <= kLongestFactor &&
          (best == 0 || Lanes(n, a) <= Lanes(n, best)) &&
          FourierTransform<T>::Transforms(a) &&
          FourierTransform<T>::Transforms(b)) {
        best = a;
      }
    }
    return best;
  }
  // The lanes of all blocks of both steps, per term.
  static double Lanes(int64_t n, int64_t a) {
    const auto filled = [](int64_t size) {
      return static_cast<double>(Blocks(size) * kWidth) /
             static_cast<double>(size);
    };
    return filled(a) + filled(n / a);
  }

  static int64_t Blocks(int64_t size) { return (size + kWidth - 1) / kWidth; }
  // The last block overlaps the one before, so that it is whole.
  static int64_t Start(int64_t block, int64_t size) {
    return std::min(block * kWidth, size - kWidth);
  }

  int64_t MiddleStep() const {
    return (a_ + kWidth - 1) / kWidth * kWidth + kWidth;
  }
  int64_t MiddlePlane() const { return b_ * MiddleStep() + kWidth; }
  int64_t BufferPlane() const { return (std::max(a_, b_) + 1) * kWidth; }
  ComplexPlanes<T> Buffer(T* buffer, int64_t i) const {
    T* const re = buffer + 2 * i * BufferPlane();
    return {re, re + BufferPlane(), kWidth};
  }

  void Rotate(const ComplexPlanes<T>& x, const T* rotation) const {
    for (int64_t k = 0; k < a_; ++k, rotation += 2 * kWidth) {
      for (int64_t v = 0; v < kWidth; v += kLane) {
        const ComplexPlanes<T> y = x.Moved(v);
        y.Set(k, y.At(k).Rotated(Load<Vector<T>>(rotation + v),
                                 Load<Vector<T>>(rotation + v + kWidth)));
      }
    }
  }

  int64_t a_, b_;
  FourierTransform<T> first_, second_;
  std::vector<T> rotation_;  // (cos, sin) vectors by block and k1
};

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_LONG_H_
