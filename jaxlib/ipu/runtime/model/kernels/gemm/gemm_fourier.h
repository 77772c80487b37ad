// Products with the matrix of a discrete Fourier transform, computed by a fast
// transform; included only by gemm_*.cc.
//
// The compiler lowers FFTs to matrix products (ops/fft.py), in which each
// coefficient takes as many multiply-adds as there are terms, and marks these
// products in the program. Where the whole matrix is multiplied, the kernel
// transforms the other operand by a fast algorithm, and does not read the
// matrix.
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
  // Returns null if the product is not with a whole Fourier matrix, or if fast
  // transforms do not support the length, the types or the result's layout.
  static std::shared_ptr<const FourierProduct> Make(const Product& p,
                                                    DType native);

  void Run(const char* data, char* result, ThreadPool& threads) const;

 private:
  using Planes = ComplexPlanes<T>;
  static constexpr int64_t kLane = kLanes<T>;
  // Products of fewer terms are multiplied. A guess: there, a product takes
  // hardly more operations than a transform.
  static constexpr int64_t kFewestTerms = 8;
  // A limit for the buffers of a block: 6 planes of 257 vectors of 32 bytes
  // take 48 KB. ops/fft.py needs no more than 127.
  static constexpr int64_t kLongest = 256;
  // If rows are adjacent in the result, but in runs of fewer rows than this,
  // many lanes would be empty. A guess: the lanes of f32 with AVX2.
  static constexpr int64_t kShortestRun = 8;

  FourierProduct(const Product& p, DType native);

  // The distance between neighbouring indices in [first, first + count); 0 if
  // it varies.
  static int64_t StepOf(const Axis& axis, int64_t first, int64_t count);
  // The same in each of the planes of `count` indices.
  static int64_t StepOfPlanes(const Axis& axis, int64_t planes, int64_t count);

  // Transforms `count` rows of the data, at most as many as a vector has lanes,
  // from row `first` on. `result` is where each plane of the result begins.
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
  int64_t size_;  // rows of the data
  Matrix data_;   // columns are terms
  Axis rows_;     // of the result
  Axis coefficients_;
  int64_t kept_step_;   // between coefficients, in elements; 0 if not supported
  bool adjacent_rows_;  // in the result; otherwise coefficients are adjacent
  int64_t run_;         // rows that blocks divide: those adjacent to each other
  bool native_;
  LoadRun<T> load_;
  int64_t term_step_;  // between terms, in elements; 0 if it varies
  // The terms are real and of even number: they are transformed as half as many
  // complex ones.
  bool halved_;
  FourierTransform<T> transform_;
  std::vector<T> rotation_;  // for Split: (cos, sin) of 2 pi k / length
};

template <typename T>
std::shared_ptr<const FourierProduct<T>> FourierProduct<T>::Make(
    const Product& p, DType native) {
  if (!p.fourier || p.adds || p.result.dtype != native) return nullptr;
  const FourierMatrix& f = *p.fourier;
  const int64_t terms = f.planes * f.terms, columns = f.out_planes * f.kept;
  if (Extent(p.batch) != 1 || Extent(p.m) == 0 || Extent(p.n) != columns ||
      Extent(p.k) != terms) {
    return nullptr;  // a part of the matrix
  }
  if (terms < kFewestTerms || f.terms < 2 || f.kept < 2 ||
      f.length > kLongest || !FourierTransform<T>::Transforms(f.length)) {
    return nullptr;
  }
  std::shared_ptr<const FourierProduct> made(new FourierProduct(p, native));
  return made->kept_step_ == 0 ? nullptr : made;
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
int64_t FourierProduct<T>::StepOfPlanes(const Axis& axis, int64_t planes,
                                        int64_t count) {
  const int64_t step = StepOf(axis, 0, count);
  if (planes == 2 && StepOf(axis, count, count) != step) return 0;
  return step;
}

template <typename T>
FourierProduct<T>::FourierProduct(const Product& p, DType native)
    : f_(*p.fourier),
      size_(Extent(p.m)),
      data_{p.lhs.dtype, p.lhs.item_size, Axis(), Axis(),
            AxisOf(p.k, &ProductLoop::lhs)},
      coefficients_(AxisOf(p.n, &ProductLoop::result)),
      kept_step_(StepOfPlanes(coefficients_, f_.out_planes, f_.kept)),
      adjacent_rows_(kept_step_ != 1),
      native_(data_.dtype == native),
      load_(LoadRunOf<T>(data_.dtype)),
      term_step_(StepOfPlanes(data_.column, f_.planes, f_.terms)),
      halved_(f_.planes == 1 && f_.length % 2 == 0),
      transform_(halved_ ? f_.length / 2 : f_.length) {
  const ProductLoops rows =
      adjacent_rows_ ? SortedByResult(p.m)
                     : SortedRows(p.m, SortedByResult(p.n), p.lhs.item_size,
                                  p.result.item_size);
  data_.row = AxisOf(rows, &ProductLoop::lhs);
  rows_ = AxisOf(rows, &ProductLoop::result);
  run_ = adjacent_rows_ ? rows_.run() : size_;
  if (adjacent_rows_ &&
      (rows_.stride() != 1 || (run_ < kShortestRun && run_ != size_))) {
    kept_step_ = 0;
  }
  if (!halved_) return;
  const UnitRoots roots(f_.length);
  for (int64_t k = 0; k <= f_.length / 2; ++k) {
    rotation_.push_back(static_cast<T>(roots.cosine[k]));
    rotation_.push_back(static_cast<T>(roots.sine[k]));
  }
}

template <typename T>
void FourierProduct<T>::Run(const char* data, char* result,
                            ThreadPool& threads) const {
  std::array<T*, 2> planes{};
  for (int64_t plane = 0; plane < f_.out_planes; ++plane) {
    planes[plane] =
        reinterpret_cast<T*>(result) + coefficients_.At(plane * f_.kept);
  }
  const int64_t blocks = CeilDiv(run_, kLane);
  const auto nanoseconds = static_cast<double>(4 * f_.length);
  threads.ForItems(size_ / run_ * blocks, nanoseconds,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t in_run = i % blocks * kLane;
                       RunBlock(data, planes, i / blocks * run_ + in_run,
                                std::min(kLane, run_ - in_run));
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
  const bool direct = adjacent_rows_ && count == kLane && f_.out_planes == 2;
  const Planes in = Terms(data, first, count, packed);
  Planes memory{};
  if (direct) {
    const int64_t at = rows_.At(first);
    memory = {result[0] + at, result[1] + at, kept_step_};
  }
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
    if (adjacent_rows_) {
      const Mask<T> mask(count);
      T* const to = result[plane] + rows_.At(first);
      for (int64_t k = 0; k < f_.kept; ++k) {
        mask.Store(to + k * kept_step_, Load<Vector<T>>(kept + k * kLane));
      }
      continue;
    }
    rows_.ForRuns(
        {first, first + count}, [&](int64_t at, int64_t lane, int64_t lanes) {
          T* const to = result[plane] + at;
          const int64_t step = rows_.stride();
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
