// Products with the matrix of a discrete Fourier transform, computed by a fast
// transform; included only by gemm_*.cc.
//
// The compiler lowers FFTs to matrix products (ops/fft.py), in which each
// coefficient takes as many multiply-adds as there are terms. If an operand is
// constant, its elements are known when the kernel is made. If they turn out to
// be the matrix of a Fourier transform, the kernel transforms the other operand
// by a fast algorithm and multiplies no matrices.
//
// Each row of the other operand (the *data*) is transformed on its own; its
// elements are the *terms* of the transform. The lanes of a vector hold as many
// rows. A *plane* is the real or the imaginary part of complex numbers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_matrix.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_transform.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pack.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

template <typename T>
class FourierProduct {
 public:
  // Returns null if neither operand is a constant Fourier matrix, or if fast
  // transforms do not support the length, the types or the result's layout.
  static std::shared_ptr<const FourierProduct> Make(const NormalProduct& p,
                                                    DType native);

  void Run(const char* lhs, const char* rhs, char* result,
           ThreadPool& threads) const;

 private:
  using Planes = ComplexPlanes<T>;
  static constexpr int64_t kLane = kLanes<T>;
  // A product of fewer terms is as fast as a transform; a guess.
  static constexpr int64_t kShortest = 8, kLongest = 256;

  FourierProduct(const NormalProduct& p, bool lhs, DType native,
                 const FourierMatrix& f, int64_t matrices);

  // How many consecutive matrices of the batch form a transform's matrix: 2 if
  // they compute the real and the imaginary parts of the same data, otherwise
  // 1; 0 if the batch does not repeat the same matrices.
  static int64_t MatricesOf(const NormalProduct& p, bool lhs);
  // The distance between neighbouring indices in [first, first + count); 0 if
  // it varies.
  static int64_t StepOf(const Axis& axis, int64_t first, int64_t count);

  // Transforms `count` rows of the data, at most as many as a vector has lanes,
  // from row `first` on.
  void RunBlock(const char* data, const std::array<T*, 2>& result,
                int64_t first, int64_t count) const;
  // Returns the terms of these rows: where they are, if they can be loaded as
  // vectors from there; otherwise in `packed`, to which it copies them.
  Planes Terms(const char* data, int64_t first, int64_t count,
               Planes packed) const;
  // Computes the transform of real terms from the half-length one (see
  // `halved_`).
  void Split(Planes half, Planes out) const;
  // Copies the coefficients of `count` rows to the result.
  void StoreBlock(Planes from, const std::array<T*, 2>& result, int64_t first,
                  int64_t count) const;

  FourierMatrix f_;
  bool lhs_;          // the matrix is the left operand
  int64_t matrices_;  // see MatricesOf
  int64_t batch_;
  int64_t size_;  // rows of the data in each of the batch's matrices
  Matrix data_, result_;
  bool native_;
  LoadRun<T> load_;
  int64_t term_step_;  // between terms, in elements; 0 if it varies
  // Between coefficients in the result, in elements; 0 if it varies.
  int64_t kept_step_;
  // The terms are real and of even number: they are transformed as half as many
  // complex ones.
  bool halved_;
  FourierTransform<T> transform_;
  std::vector<T> rotation_;  // for Split: (cos, sin) of 2 pi k / length
};

template <typename T>
std::shared_ptr<const FourierProduct<T>> FourierProduct<T>::Make(
    const NormalProduct& p, DType native) {
  if (p.k < kShortest || p.k > 2 * kLongest || p.batch * p.m * p.n == 0 ||
      p.adds || p.result.dtype != native || p.result.column.stride() != 1) {
    return nullptr;
  }
  for (bool lhs : {false, true}) {
    const Matrix& matrix = lhs ? p.lhs : p.rhs;
    const int64_t columns = lhs ? p.m : p.n;
    const int64_t matrices = MatricesOf(p, lhs);
    if (matrix.constant == nullptr || matrix.dtype != native || matrices == 0 ||
        columns < 2 || columns > 2 * kLongest) {
      continue;
    }
    const T* const elements = reinterpret_cast<const T*>(matrix.constant);
    const auto at = [&](int64_t term, int64_t column) {
      return elements[matrix.batch.At(column / columns) +
                      matrix.row.At(column % columns) + matrix.column.At(term)];
    };
    const std::optional<FourierMatrix> f =
        FindFourierMatrix<T>(p.k, columns * matrices, kLongest, at);
    if (!f || columns % f->kept != 0 ||
        !FourierTransform<T>::Transforms(f->length)) {
      continue;
    }
    std::shared_ptr<const FourierProduct> made(
        new FourierProduct(p, lhs, native, *f, matrices));
    if (!lhs || made->kept_step_ != 0) return made;
  }
  return nullptr;
}

template <typename T>
int64_t FourierProduct<T>::MatricesOf(const NormalProduct& p, bool lhs) {
  const Axis& matrix = lhs ? p.lhs.batch : p.rhs.batch;
  const Axis& data = lhs ? p.rhs.batch : p.lhs.batch;
  // The real and the imaginary parts of the result may be two consecutive
  // products of the batch, with the same data.
  const int64_t count = p.batch > 1 && data.At(1) == data.At(0) ? 2 : 1;
  if (p.batch % count != 0) return 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    if (matrix.At(b) != matrix.At(b % count) ||
        data.At(b) != data.At(b - b % count)) {
      return 0;
    }
  }
  return count;
}

template <typename T>
int64_t FourierProduct<T>::StepOf(const Axis& axis, int64_t first,
                                  int64_t count) {
  const int64_t step = axis.At(first + 1) - axis.At(first);
  for (int64_t i = 2; i < count; ++i) {
    if (axis.At(first + i) - axis.At(first) != i * step) return 0;
  }
  return step;
}

template <typename T>
FourierProduct<T>::FourierProduct(const NormalProduct& p, bool lhs,
                                  DType native, const FourierMatrix& f,
                                  int64_t matrices)
    : f_(f),
      lhs_(lhs),
      matrices_(matrices),
      batch_(p.batch),
      size_(lhs ? p.n : p.m),
      data_(lhs ? p.rhs : p.lhs),
      result_(p.result),
      native_(data_.dtype == native),
      load_(LoadRunOf<T>(data_.dtype)),
      term_step_(StepOf(data_.column, 0, f.terms)),
      kept_step_(lhs ? StepOf(p.result.row, 0, f.kept) : 1),
      halved_(f.planes == 1 && f.length % 2 == 0),
      transform_(halved_ ? f.length / 2 : f.length) {
  if (f.planes == 2 && StepOf(data_.column, f.terms, f.terms) != term_step_) {
    term_step_ = 0;
  }
  if (lhs && f.out_planes > matrices &&
      StepOf(p.result.row, f.kept, f.kept) != kept_step_) {
    kept_step_ = 0;
  }
  if (!halved_) return;
  const UnitRoots roots(f.length);
  for (int64_t k = 0; k <= f.length / 2; ++k) {
    rotation_.push_back(static_cast<T>(roots.cosine[k]));
    rotation_.push_back(static_cast<T>(roots.sine[k]));
  }
}

template <typename T>
void FourierProduct<T>::Run(const char* lhs, const char* rhs, char* result,
                            ThreadPool& threads) const {
  const int64_t blocks = CeilDiv(size_, kLane);
  const char* const data = lhs_ ? rhs : lhs;
  const auto nanoseconds = static_cast<double>(4 * f_.length);
  threads.ForItems(
      batch_ / matrices_ * blocks, nanoseconds,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / blocks * matrices_;
          std::array<T*, 2> planes{};
          for (int64_t plane = 0; plane < f_.out_planes; ++plane) {
            const int64_t column = plane * f_.kept;
            const int64_t columns = f_.out_planes * f_.kept / matrices_;
            planes[plane] =
                reinterpret_cast<T*>(result) +
                result_.batch.At(b + column / columns) +
                (lhs_ ? result_.row.At(column % columns) : column % columns);
          }
          const int64_t first = i % blocks * kLane;
          RunBlock(data + data_.batch.At(b) * data_.item_size, planes, first,
                   std::min(kLane, size_ - first));
        }
      });
}

template <typename T>
void FourierProduct<T>::RunBlock(const char* data,
                                 const std::array<T*, 2>& result, int64_t first,
                                 int64_t count) const {
  // Without a vector of padding, equal terms of all planes would compete for
  // the same sets of the cache if the length is a power of two.
  const int64_t plane = (f_.length + 1) * kLane;
  T* const buffer = ThreadBuffers().columns.Get<T>(6 * plane);
  const auto planes = [&](int64_t i) {
    return Planes{buffer + 2 * i * plane, buffer + (2 * i + 1) * plane, kLane};
  };
  const Planes packed = planes(0), work = planes(1);
  const bool direct = lhs_ && count == kLane && f_.out_planes == 2;
  const Planes in = Terms(data, first, count, packed);
  const Planes memory = {result[0] + first, result[1] + first, kept_step_};
  if (halved_) {
    transform_.Run(in, work, packed, planes(2));
    const Planes out = direct ? memory : packed;
    Split(planes(2), out);
    if (!direct) StoreBlock(out, result, first, count);
    return;
  }
  const bool written = direct && f_.kept == f_.length;
  const Planes out = written ? memory : planes(2);
  if (f_.sign < 0) {
    transform_.Run(in, work, packed, out);
  } else {
    transform_.Run(in.Exchanged(), work, packed, out.Exchanged());
  }
  if (!written) StoreBlock(out, result, first, count);
}

template <typename T>
typename FourierProduct<T>::Planes FourierProduct<T>::Terms(
    const char* data, int64_t first, int64_t count, Planes packed) const {
  const IndexRange rows = {first, first + count};
  const bool complete = f_.terms == f_.length && (halved_ || f_.planes == 2);
  if (native_ && count == kLane && term_step_ != 0 && data_.row.stride() == 1 &&
      data_.row.InOneRun(rows) && complete && (halved_ || f_.scale == 1)) {
    T* const terms = const_cast<T*>(reinterpret_cast<const T*>(data)) +
                     data_.row.At(first) + data_.column.At(0);
    if (halved_) return {terms, terms + term_step_, 2 * term_step_};
    return {terms, terms + data_.column.At(f_.terms) - data_.column.At(0),
            term_step_};
  }
  const Packer<T> packer{data_, native_, load_};
  for (int64_t plane = 0; plane < (halved_ ? 1 : 2); ++plane) {
    T* const to = plane == 0 ? packed.re : packed.im;
    const int64_t terms = plane < f_.planes ? f_.terms : 0;
    if (terms > 0) {
      packer.Pack(data, rows, {plane * terms, (plane + 1) * terms}, to, kLane);
    }
    std::fill(to + terms * kLane, to + f_.length * kLane, T{});
    if (halved_ || f_.scale == 1) continue;
    const Vector<T> scale = Broadcast(static_cast<T>(f_.scale));
    for (int64_t i = 0; i < terms * kLane; i += kLane) {
      Store(to + i, scale * Load<Vector<T>>(to + i));
    }
  }
  if (halved_) return {packed.re, packed.re + kLane, 2 * kLane};
  return packed;
}

// The half-length transform took each pair of real terms (x[2j], x[2j + 1]) as
// the complex number x[2j] + i x[2j + 1]. The transform of the terms at even
// places is the conjugate-symmetric part of its result, and i times that of the
// terms at odd places is the rest. Rotating the latter and adding both gives
// the transform of all terms.
template <typename T>
void FourierProduct<T>::Split(Planes half, Planes out) const {
  const int64_t n = f_.length;
  const Vector<T> scale = Broadcast(static_cast<T>(f_.scale / 2));
  const Vector<T> sign = Broadcast(static_cast<T>(-f_.sign));
  // Scales by a half before two values are added, so that the sum does not
  // overflow.
  const auto at = [&](int64_t k) -> ComplexLanes<T> {
    const ComplexLanes<T> x = half.At(k % (n / 2));
    return {scale * x.re, scale * x.im};
  };
  for (int64_t k = 0; k <= n / 2; ++k) {
    const ComplexLanes<T> a = at(k), b = at(n / 2 - k);
    const ComplexLanes<T> even = {a.re + b.re, a.im - b.im};
    const ComplexLanes<T> odd = {a.im + b.im, b.re - a.re};
    ComplexLanes<T> x =
        even + odd.Rotated(rotation_[2 * k], rotation_[2 * k + 1]);
    x.im = sign * x.im;
    if (k < f_.kept) out.Set(k, x);
    if (k > 0 && 2 * k < n && n - k < f_.kept) out.Set(n - k, {x.re, -x.im});
  }
}

template <typename T>
void FourierProduct<T>::StoreBlock(Planes from, const std::array<T*, 2>& result,
                                   int64_t first, int64_t count) const {
  for (int64_t plane = 0; plane < f_.out_planes; ++plane) {
    const T* const kept = plane == 0 ? from.re : from.im;
    if (lhs_) {
      const Mask<T> mask(count);
      for (int64_t k = 0; k < f_.kept; ++k) {
        mask.Store(result[plane] + k * kept_step_ + first,
                   Load<Vector<T>>(kept + k * kLane));
      }
      continue;
    }
    result_.row.ForRuns(
        {first, first + count}, [&](int64_t at, int64_t lane, int64_t lanes) {
          T* const to = result[plane] + at;
          const int64_t step = result_.row.stride();
          // TransposeRun may write beyond the end of rows of fewer than kLane
          // elements.
          if (f_.kept >= kLane) {
            return TransposeRun(kept + lane, kLane, f_.kept, lanes, to, step);
          }
          for (int64_t i = 0; i < lanes; ++i) {
            for (int64_t k = 0; k < f_.kept; ++k) {
              to[i * step + k] = kept[k * kLane + lane + i];
            }
          }
        });
  }
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_
