// Products with the matrix of a discrete Fourier transform, in which each row
// of the data is transformed on its own (fourier_long.h): long rows, or too few
// for the lanes of vectors (gemm_fourier.h). Included only by gemm_impl.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_ROWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_long.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_matrix.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_pairs.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_real.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

template <typename T>
class FourierRows {
 public:
  // Returns null if the product is not with a whole Fourier matrix, if there
  // are no fast transforms of this length, or if a row's terms are not evenly
  // spaced or its coefficients not adjacent.
  static std::shared_ptr<const FourierRows> Make(const Product& p,
                                                 DType native);

  void Run(const char* data, char* result, ThreadPool& threads) const;

 private:
  using Planes = ComplexPlanes<T>;
  static constexpr int64_t kLane = kLanes<T>;
  // Shorter transforms are computed by FourierProduct; a guess.
  static constexpr int64_t kShortest = 256;
  // So are those of so many rows, if they have fewer terms than this, or if
  // they have no more than that and terms are not adjacent or lanes would
  // compute the same more than once. Measured (f32, AVX2, one core): a row of
  // 256, 512 and 1024 complex numbers took 0.61, 0.80 and 2.05 us, and 0.51,
  // 1.01 and 3.94 us in lanes. 1000 rows of 1000, for which there are 1.6 times
  // as many lanes as needed, took 4.2 and 3.3 ms.
  static constexpr int64_t kManyRows = 8;
  static constexpr int64_t kShortestOfManyRows = 512;
  static constexpr int64_t kMostOfManyRows = 1024;
  static constexpr double kMostLanes = 1.25;
  // A guess for the division among threads.
  static constexpr int64_t kNanoseconds = 3;
  // What is transformed as complex numbers.
  enum class Form : uint8_t {
    kTerms,         // the terms
    kPairs,         // pairs of real terms; see RealTransform::Split
    kCoefficients,  // of pairs of real results; see RealTransform::Merge
  };

  explicit FourierRows(const Product& p);

  static Form FormOf(const FourierMatrix& f) {
    if (f.length % 2 != 0) return Form::kTerms;
    if (f.planes == 1) return Form::kPairs;
    return f.out_planes == 1 ? Form::kCoefficients : Form::kTerms;
  }
  static int64_t LengthOf(const FourierMatrix& f) {
    return FormOf(f) == Form::kTerms ? f.length : f.length / 2;
  }

  // Two planes of a buffer. Each has one element more than is transformed, see
  // RealTransform, and room for what vectors write beyond.
  Planes Buffer(T* buffer, int64_t i) const {
    T* const re = buffer + 2 * i * PlaneSize();
    return {re, re + PlaneSize(), 1};
  }
  int64_t PlaneSize() const {
    return CeilDiv(length_ + 1, kLane) * kLane + kLane;
  }

  // Transforms a row; divides the work if there are threads.
  void RunRow(const T* data, T* result, ThreadPool* threads) const;
  // `in` may be `out`.
  void Transform(const Planes& in, const Planes& out, T* middle,
                 ThreadPool* threads) const;
  // Copies terms of a plane.
  void Copy(const T* plane, int64_t count, T* to) const;
  // The terms as complex numbers: where they are, or copied to `to`.
  Planes Terms(const T* data, const Planes& to) const;
  void CopyPairs(const T* data, const Planes& to) const;
  // Copies coefficients 0 to length / 2 of a real result, which is the real
  // part of the terms' transform: half of each term plus the conjugate of its
  // counterpart.
  void CopySymmetric(const T* data, const Planes& to) const;
  // Writes the first coefficients to a row of the result.
  void StoreKept(const Planes& from, int64_t count, T* result) const;
  // Writes coefficients from length / 2 + 1 on, which are conjugates of those
  // before.
  void StoreReflected(const Planes& from, T* result) const;

  FourierMatrix f_;
  Form form_;
  int64_t length_;  // of the complex transforms
  int64_t size_;    // rows of the data
  Axis data_rows_, rows_;
  int64_t step_;                 // from term to term
  bool pairs_;                   // the coefficients are
  int64_t planes_, out_planes_;  // from real to imaginary parts
  LongFourierTransform<T> transform_;
  std::optional<RealTransform<T>> real_;
};

template <typename T>
std::shared_ptr<const FourierRows<T>> FourierRows<T>::Make(const Product& p,
                                                           DType native) {
  if (!p.fourier || p.adds || p.lhs.dtype != native ||
      p.result.dtype != native) {
    return nullptr;
  }
  const FourierMatrix& f = *p.fourier;
  if (Extent(p.batch) != 1 || Extent(p.m) == 0 ||
      Extent(p.n) != f.out_planes * f.kept ||
      Extent(p.k) != f.planes * f.terms || f.terms < 2 || f.kept < 2 ||
      f.length < kShortest ||
      !LongFourierTransform<T>::Transforms(LengthOf(f))) {
    return nullptr;
  }
  const bool many = Extent(p.m) >= kManyRows && f.length <= kMostOfManyRows;
  if (many && (f.length < kShortestOfManyRows ||
               LongFourierTransform<T>::Lanes(LengthOf(f)) > kMostLanes)) {
    return nullptr;
  }
  std::shared_ptr<const FourierRows> made(new FourierRows(p));
  if (many && (made->step_ < 1 || made->step_ > 2)) return nullptr;
  return made->step_ == 0 ? nullptr : made;
}

template <typename T>
FourierRows<T>::FourierRows(const Product& p)
    : f_(*p.fourier),
      form_(FormOf(f_)),
      length_(LengthOf(f_)),
      size_(Extent(p.m)),
      transform_(length_, form_ == Form::kPairs ? f_.scale / 2 : f_.scale) {
  const ProductLoops rows = SortedByResult(p.m);
  data_rows_ = AxisOf(rows, &ProductLoop::lhs);
  rows_ = AxisOf(rows, &ProductLoop::result);
  const Axis terms = AxisOf(p.k, &ProductLoop::lhs);
  const Axis coefficients = AxisOf(p.n, &ProductLoop::result);
  step_ = StepOfPlanes(terms, f_.planes, f_.terms);
  planes_ = terms.At((f_.planes - 1) * f_.terms);
  out_planes_ = coefficients.At((f_.out_planes - 1) * f_.kept);
  const int64_t kept_step = StepOfPlanes(coefficients, f_.out_planes, f_.kept);
  pairs_ = PairsOf(f_.out_planes, out_planes_, kept_step) == Pairs::kOfRow;
  if (kept_step != 1 && !pairs_) step_ = 0;
  if (form_ != Form::kTerms) real_.emplace(f_.length, f_.sign);
}

template <typename T>
void FourierRows<T>::Run(const char* data, char* result,
                         ThreadPool& threads) const {
  const auto run = [&](int64_t row, ThreadPool* pool) {
    RunRow(reinterpret_cast<const T*>(data) + data_rows_.At(row),
           reinterpret_cast<T*>(result) + rows_.At(row), pool);
  };
  if (size_ < threads.threads()) {
    for (int64_t i = 0; i < size_; ++i) run(i, &threads);
    return;
  }
  threads.ForItems(size_, static_cast<double>(kNanoseconds * length_),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) run(i, nullptr);
                   });
}

template <typename T>
void FourierRows<T>::RunRow(const T* data, T* result,
                            ThreadPool* threads) const {
  T* const buffer =
      ThreadBuffers().columns.Get<T>(4 * PlaneSize() + transform_.MiddleSize());
  const Planes a = Buffer(buffer, 0), b = Buffer(buffer, 1);
  T* const middle = buffer + 4 * PlaneSize();
  // All that is stored of a complex result can be written where it belongs.
  const auto direct = [&](int64_t count) {
    return f_.out_planes == 2 && f_.kept >= count && !pairs_;
  };
  const Planes to = {result, result + out_planes_, 1};
  if (form_ == Form::kTerms) {
    const Planes& out = direct(length_) ? to : b;
    Transform(Terms(data, a), out, middle, threads);
    if (!direct(length_)) StoreKept(out, f_.kept, result);
  } else if (form_ == Form::kPairs) {
    CopyPairs(data, a);
    Transform(a, a, middle, threads);
    a.re[length_] = a.re[0];
    a.im[length_] = a.im[0];
    const int64_t count = length_ + 1;
    const Planes& out = direct(count) ? to : b;
    real_->Split(a, out);
    if (!direct(count)) StoreKept(out, std::min(f_.kept, count), result);
    StoreReflected(out, result);
  } else {
    CopySymmetric(data, a);
    real_->Merge(a, b);
    Transform(b, a, middle, threads);
    T* const pairs = f_.kept == f_.length ? result : b.re;
    JoinFew<2>(a.re, PlaneSize(), length_, pairs);
    if (pairs != result) std::copy_n(pairs, f_.kept, result);
  }
}

template <typename T>
void FourierRows<T>::Transform(const Planes& in, const Planes& out, T* middle,
                               ThreadPool* threads) const {
  // Real terms are transformed forwards, see RealTransform.
  const bool backward = f_.sign > 0 && form_ != Form::kPairs;
  const Planes from = backward ? in.Exchanged() : in;
  const Planes to = backward ? out.Exchanged() : out;
  const auto divide = [&](int64_t blocks, const auto& run) {
    const auto part = [&](int64_t begin, int64_t end) {
      run(begin, end, ThreadBuffers().rows.Get<T>(transform_.BufferSize()));
    };
    if (threads == nullptr) return part(0, blocks);
    threads->ForItems(
        blocks, static_cast<double>(kNanoseconds * length_ / (2 * blocks)),
        part);
  };
  divide(transform_.first_blocks(), [&](int64_t begin, int64_t end, T* buffer) {
    transform_.RunFirst(from, middle, begin, end, buffer);
  });
  divide(transform_.second_blocks(),
         [&](int64_t begin, int64_t end, T* buffer) {
           transform_.RunSecond(middle, to, begin, end, buffer);
         });
}

template <typename T>
void FourierRows<T>::Copy(const T* plane, int64_t count, T* to) const {
  if (step_ == 1) {
    std::copy_n(plane, count, to);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = plane[i * step_];
  }
}

template <typename T>
typename FourierRows<T>::Planes FourierRows<T>::Terms(const T* data,
                                                      const Planes& to) const {
  if (step_ == 1 && f_.planes == 2 && f_.terms == length_) {
    return {const_cast<T*>(data), const_cast<T*>(data) + planes_, 1};
  }
  if (PairsOf(f_.planes, planes_, step_) == Pairs::kOfRow &&
      f_.terms == length_) {
    SplitPairs(data, length_, to.re, to.im);
    return to;
  }
  const int64_t imaginary = f_.planes == 2 ? f_.terms : 0;
  Copy(data, f_.terms, to.re);
  Copy(data + planes_, imaginary, to.im);
  std::fill(to.re + f_.terms, to.re + length_, T{});
  std::fill(to.im + imaginary, to.im + length_, T{});
  return to;
}

template <typename T>
void FourierRows<T>::CopyPairs(const T* data, const Planes& to) const {
  const int64_t whole = f_.terms / 2;
  if (step_ == 1) {
    SplitPairs(data, whole, to.re, to.im);
  } else {
    for (int64_t i = 0; i < whole; ++i) {
      to.re[i] = data[2 * i * step_];
      to.im[i] = data[(2 * i + 1) * step_];
    }
  }
  std::fill(to.re + whole, to.re + length_, T{});
  std::fill(to.im + whole, to.im + length_, T{});
  if (f_.terms % 2 == 1) to.re[whole] = data[2 * whole * step_];
}

template <typename T>
void FourierRows<T>::CopySymmetric(const T* data, const Planes& to) const {
  constexpr T kHalf = static_cast<T>(0.5);
  const int64_t count = std::min(f_.terms, length_ + 1);
  for (int64_t plane = 0; plane < 2; ++plane, data += planes_) {
    T* const half = plane == 0 ? to.re : to.im;
    const T first = data[0],
            middle = count > length_ ? data[length_ * step_] : 0;
    if (step_ == 1) {
      for (int64_t k = 0; k < count; ++k) half[k] = kHalf * data[k];
    } else {
      for (int64_t k = 0; k < count; ++k) half[k] = kHalf * data[k * step_];
    }
    std::fill(half + count, half + length_ + 1, T{});
    const T sign = plane == 0 ? kHalf : -kHalf;
    for (int64_t k = length_ + 1; k < f_.terms; ++k) {
      half[f_.length - k] += sign * data[k * step_];
    }
    // These are their own counterparts.
    half[0] = plane == 0 ? first : 0;
    half[length_] = plane == 0 ? middle : 0;
  }
}

template <typename T>
void FourierRows<T>::StoreKept(const Planes& from, int64_t count,
                               T* result) const {
  if (pairs_) {
    for (int64_t i = 0; i < count; ++i) {
      result[2 * i] = from.re[i];
      result[2 * i + 1] = from.im[i];
    }
    return;
  }
  std::copy_n(from.re, count, result);
  if (f_.out_planes == 2) std::copy_n(from.im, count, result + out_planes_);
}

template <typename T>
void FourierRows<T>::StoreReflected(const Planes& from, T* result) const {
  const int64_t step = pairs_ ? 2 : 1;
  for (int64_t plane = 0; plane < f_.out_planes;
       ++plane, result += out_planes_) {
    const T* const part = plane == 0 ? from.re : from.im;
    const T sign = static_cast<T>(plane == 0 ? 1 : -1);
    for (int64_t k = length_ + 1; k < f_.kept; ++k) {
      result[k * step] = sign * part[f_.length - k];
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_ROWS_H_
