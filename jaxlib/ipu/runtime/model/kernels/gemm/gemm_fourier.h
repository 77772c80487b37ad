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
#include <numeric>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_matrix.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_pairs.h"
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
  // Joined transforms (model/joined_transforms.h) of fewer rows stay in steps,
  // whose lanes are their columns. Measured (f32, AVX-512, one core): one row
  // of 1024 took 16 us joined and 5 in steps.
  static constexpr int64_t kFewestRows = 8;
  // A limit for the buffers of a block: 6 planes of 1025 vectors of 64 bytes
  // take 384 KB of the second-level cache. ops/fft.py needs no more than 127,
  // joined transforms (joined_product.cc) this length.
  static constexpr int64_t kLongest = 1024;
  // If rows are adjacent in the result, but in runs of fewer rows than this,
  // many lanes would be empty. A guess: the lanes of f32 with AVX2.
  static constexpr int64_t kShortestRun = 8;
  // If runs have fewer blocks than this (a guess), the last one overlaps the
  // one before. Measured (f32, AVX-512, one core): 64,000 terms in runs of 25,
  // 30 and 40 rows took 19, 20 and 19 us instead of 27, 25 and 25.
  static constexpr int64_t kFewBlocks = 8;
  // The ways of the first-level cache, of sets that repeat every kSets bytes.
  // A guess: processors have 8 or 12.
  static constexpr int64_t kWays = 12;
  static constexpr int64_t kSets = 4096;
  // Vectors that compete for the same sets are read and written so many blocks
  // at a time: then each access finds the line after that of the one before.
  // Measured (f32, AVX-512, one core): 65,536 terms in columns of 16 that are
  // 16 KB apart took 22 us instead of 35, with half as many blocks 30.
  static constexpr int64_t kTogether = 8;
  // A limit for the vectors of a plane of these blocks: two planes take 32 KB.
  static constexpr int64_t kMostTogether = 16384 / kVectorBytes;

  FourierProduct(const Product& p, DType native);

  // The elements from real to imaginary parts, and between consecutive terms or
  // coefficients.
  struct Spacing {
    int64_t planes, step;
  };
  static Planes At(T* re, const Spacing& s) {
    return {re, re + s.planes, s.step};
  }
  // Rows of the data, at most as many as a vector has lanes.
  struct Block {
    int64_t first, count;
    T* terms;  // where they can be loaded as vectors, or null
    T* to;     // in the result, if rows are adjacent there
  };

  // The elements of a plane of a block's buffers. Without a vector of padding,
  // equal terms of all planes would compete for the same sets of the cache if
  // the length is a power of two.
  int64_t PlaneSize() const { return (f_.length + 1) * kLane; }
  // The terms of rows, if they can be loaded and these are adjacent in the
  // data; otherwise null.
  T* TermsOf(const char* data, IndexRange rows) const;
  // Transforms rows [begin, end) of those that begin at row `first` and are
  // adjacent to each other in the result. `terms` and `to` are those of the
  // first, or null if rows are not adjacent in the data, in the result.
  void RunRows(const char* data, int64_t first, int64_t begin, int64_t end,
               T* terms, T* to, const std::array<T*, 2>& result) const;
  // Transforms a block. `result` is where each plane of the result begins.
  void RunBlock(const char* data, const std::array<T*, 2>& result,
                const Block& block, const Spacing& from, const Spacing& to,
                T* buffer) const;
  // Copies the terms of a block to `packed` and returns them.
  Planes Pack(const char* data, const Block& block, const Planes& packed) const;
  // Whether so many vectors `step` elements apart compete for the same sets of
  // the first-level cache.
  static bool Collides(int64_t step, int64_t vectors) {
    const int64_t bytes = step * static_cast<int64_t>(sizeof(T));
    return vectors * std::gcd(bytes, kSets) / kSets > kWays;
  }
  // Copies `width` elements of each term.
  static void CopyRows(const Planes& from, const Planes& to, int64_t planes,
                       int64_t count, int64_t width);
  // Computes the transform of real terms from the half-length one (see
  // `halved_`).
  void Split(const Planes& half, const Planes& out) const;
  // Copies the coefficients of a block to the result.
  void StoreBlock(const Planes& from, const std::array<T*, 2>& result,
                  const Block& block, const Spacing& to) const;

  // The terms of a block that are pairs.
  Planes PackPairs(const char* data, const Block& block,
                   const Planes& packed) const;
  // A buffer in which each term has a vector of real and then one of imaginary
  // parts.
  static Planes InTurn(const Planes& buffer) {
    return {buffer.re, buffer.re + kLane, 2 * kLane};
  }

  FourierMatrix f_;
  int64_t size_;  // rows of the data
  Matrix data_;   // columns are terms
  Axis rows_;     // of the result
  Axis coefficients_;
  int64_t kept_step_;  // between coefficients, in elements; 0 if not supported
  Pairs data_pairs_, kept_pairs_;
  bool adjacent_rows_;  // in the result; otherwise coefficients or pairs
  // Blocks divide runs of so many rows, which are adjacent to each other in the
  // result, if adjacent_rows_, and in the data, if loads_ and possible.
  int64_t run_;
  bool native_;
  LoadRun<T> load_;
  // The terms of rows that are adjacent in the data can be loaded as vectors.
  bool loads_;
  // Terms, coefficients: vectors of many blocks are read, written together.
  bool gathers_, scatters_;
  // The last block of a run has the rows before it, too, so that it is whole.
  bool overlaps_;
  Spacing from_;  // of terms that are loaded
  Spacing to_;    // of coefficients
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
  const auto is_one = [](const ProductLoops& loops) {
    return std::all_of(loops.begin(), loops.end(),
                       [](const ProductLoop& l) { return l.rhs == 0; });
  };
  const bool joined = is_one(p.n) && is_one(p.k);
  if (joined && Extent(p.m) < kFewestRows) return nullptr;
  if (terms < kFewestTerms || f.terms < 2 || f.kept < 2 ||
      f.length > kLongest || !FourierTransform<T>::Transforms(f.length)) {
    return nullptr;
  }
  std::shared_ptr<const FourierProduct> made(new FourierProduct(p, native));
  return made->kept_step_ == 0 ? nullptr : made;
}

template <typename T>
FourierProduct<T>::FourierProduct(const Product& p, DType native)
    : f_(*p.fourier),
      size_(Extent(p.m)),
      data_{p.lhs.dtype, p.lhs.item_size, Axis(), Axis(),
            AxisOf(p.k, &ProductLoop::lhs)},
      coefficients_(AxisOf(p.n, &ProductLoop::result)),
      kept_step_(StepOfPlanes(coefficients_, f_.out_planes, f_.kept)),
      kept_pairs_(PairsOf(f_.out_planes,
                          coefficients_.At((f_.out_planes - 1) * f_.kept),
                          kept_step_)),
      adjacent_rows_(kept_step_ != 1 && kept_pairs_ == Pairs::kNone),
      native_(data_.dtype == native),
      load_(LoadRunOf<T>(data_.dtype)),
      halved_(f_.planes == 1 && f_.length % 2 == 0),
      transform_(halved_ ? f_.length / 2 : f_.length, halved_ ? 1 : f_.scale) {
  const ProductLoops rows =
      adjacent_rows_ || kept_pairs_ == Pairs::kOthers
          ? SortedByResult(p.m)
          : SortedRows(p.m, SortedByResult(p.n), p.lhs.item_size,
                       p.result.item_size);
  data_.row = AxisOf(rows, &ProductLoop::lhs);
  rows_ = AxisOf(rows, &ProductLoop::result);
  run_ = adjacent_rows_ ? rows_.run() : size_;
  if (adjacent_rows_ &&
      (rows_.stride() != 1 || (run_ < kShortestRun && run_ != size_))) {
    kept_step_ = 0;
  }
  const int64_t step = StepOfPlanes(data_.column, f_.planes, f_.terms);
  loads_ = native_ && step != 0 && data_.row.stride() == 1 &&
           f_.terms == f_.length && (halved_ || f_.planes == 2);
  data_pairs_ = native_ ? PairsOf(f_.planes, data_.column.At(f_.terms), step)
                        : Pairs::kNone;
  const int64_t run = data_.row.run();
  const auto overlaps = [&](int64_t rows) {
    return loads_ && adjacent_rows_ && rows % kLane != 0 && rows > kLane &&
           rows < kFewBlocks * kLane;
  };
  if (loads_ && run_ % run == 0 && (run % kLane == 0 || overlaps(run))) {
    run_ = run;
  }
  overlaps_ = overlaps(run_);
  // The terms of a half-length transform are the real ones in turn.
  from_ = halved_ ? Spacing{step, 2 * step}
                  : Spacing{data_.column.At((f_.planes - 1) * f_.terms) -
                                data_.column.At(0),
                            step};
  to_ = {coefficients_.At((f_.out_planes - 1) * f_.kept) - coefficients_.At(0),
         kept_step_};
  gathers_ = loads_ && Collides(step, f_.planes * f_.terms);
  scatters_ = adjacent_rows_ && Collides(kept_step_, f_.out_planes * f_.kept);
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
  // If blocks overlap, each thread gets whole runs.
  const int64_t unit = overlaps_ ? run_ : kLane;
  const int64_t units = CeilDiv(run_, unit);
  const auto nanoseconds =
      static_cast<double>(4 * f_.length * CeilDiv(unit, kLane));
  threads.ForItems(
      size_ / run_ * units, nanoseconds, [&](int64_t begin, int64_t end) {
        for (int64_t run = begin / units; run * units < end; ++run) {
          // Addresses within a run take no division.
          const IndexRange rows = {run * run_, (run + 1) * run_};
          T* const to =
              adjacent_rows_ ? planes[0] + rows_.At(rows.begin) : nullptr;
          RunRows(data, rows.begin,
                  std::max<int64_t>(begin - run * units, 0) * unit,
                  std::min((end - run * units) * unit, run_),
                  TermsOf(data, rows), to, planes);
        }
      });
}

template <typename T>
T* FourierProduct<T>::TermsOf(const char* data, IndexRange rows) const {
  if (!loads_ || !data_.row.InOneRun(rows)) return nullptr;
  return const_cast<T*>(reinterpret_cast<const T*>(data)) +
         data_.row.At(rows.begin) + data_.column.At(0);
}

template <typename T>
void FourierProduct<T>::RunRows(const char* data, int64_t first, int64_t begin,
                                int64_t end, T* terms, T* to,
                                const std::array<T*, 2>& result) const {
  const int64_t blocks = kMostTogether / f_.length;
  const int64_t width = std::min(kTogether, blocks) * kLane;
  const int64_t plane = f_.length * width + kLane;
  T* const buffer = ThreadBuffers().columns.Get<T>(6 * PlaneSize() + 4 * plane);
  T* const gathered = buffer + 6 * PlaneSize();
  T* const scattered = gathered + 2 * plane;
  const Spacing near{plane, width};
  const bool gathers = gathers_ && terms != nullptr && blocks > 1;
  const bool scatters = scatters_ && blocks > 1;
  const auto moved = [](T* p, int64_t by) {
    return p == nullptr ? nullptr : p + by;
  };
  int64_t i = begin;
  for (; (gathers || scatters) && i + width <= end; i += width) {
    if (gathers) {
      CopyRows(At(terms + i, from_), At(gathered, near), 2,
               halved_ ? f_.length / 2 : f_.length, width);
    }
    for (int64_t j = 0; j < width; j += kLane) {
      RunBlock(
          data, result,
          {first + i + j, kLane, gathers ? gathered + j : moved(terms, i + j),
           scatters ? scattered + j : moved(to, i + j)},
          gathers ? near : from_, scatters ? near : to_, buffer);
    }
    if (scatters) {
      CopyRows(At(scattered, near), At(to + i, to_), f_.out_planes, f_.kept,
               width);
    }
  }
  for (; i < end; i += kLane) {
    if (overlaps_) i = std::min(i, end - kLane);
    const IndexRange rows = {first + i, first + std::min(i + kLane, end)};
    T* from = moved(terms, i);
    if (rows.size() < kLane) {
      from = nullptr;
    } else if (terms == nullptr) {
      from = TermsOf(data, rows);
    }
    RunBlock(data, result, {rows.begin, rows.size(), from, moved(to, i)}, from_,
             to_, buffer);
  }
}

template <typename T>
void FourierProduct<T>::CopyRows(const Planes& from, const Planes& to,
                                 int64_t planes, int64_t count, int64_t width) {
  for (int64_t plane = 0; plane < planes; ++plane) {
    const T* row = plane == 0 ? from.re : from.im;
    T* to_row = plane == 0 ? to.re : to.im;
    for (int64_t i = 0; i < count; ++i, row += from.step, to_row += to.step) {
      for (int64_t j = 0; j < width; j += kLane) {
        Store(to_row + j, Load<Vector<T>>(row + j));
      }
    }
  }
}

template <typename T>
void FourierProduct<T>::RunBlock(const char* data,
                                 const std::array<T*, 2>& result,
                                 const Block& block, const Spacing& from,
                                 const Spacing& to, T* buffer) const {
  const int64_t plane = PlaneSize();
  const auto planes = [&](int64_t i) {
    return Planes{buffer + 2 * i * plane, buffer + (2 * i + 1) * plane, kLane};
  };
  const Planes packed = planes(0), work = planes(1), last = planes(2);
  const bool direct =
      adjacent_rows_ && block.count == kLane && f_.out_planes == 2;
  const bool pairs = kept_pairs_ != Pairs::kNone;
  const Planes in = block.terms != nullptr ? At(block.terms, from)
                                           : Pack(data, block, packed);
  if (halved_) {
    transform_.Run(in, work, packed, last);
    const Planes out = direct  ? At(block.to, to)
                       : pairs ? InTurn(packed)
                               : packed;
    Split(last, out);
    if (!direct) StoreBlock(out, result, block, to);
    return;
  }
  const bool written = direct && f_.kept == f_.length;
  const Planes out = written ? At(block.to, to) : pairs ? InTurn(last) : last;
  if (f_.sign < 0) {
    transform_.Run(in, work, packed, out);
  } else {
    transform_.Run(in.Exchanged(), work, packed, out.Exchanged());
  }
  if (!written) StoreBlock(out, result, block, to);
}

template <typename T>
typename FourierProduct<T>::Planes FourierProduct<T>::Pack(
    const char* data, const Block& block, const Planes& packed) const {
  if (f_.terms == f_.length && data_pairs_ == Pairs::kOfRow) {
    return PackPairs(data, block, packed);
  }
  const IndexRange rows = {block.first, block.first + block.count};
  if (f_.terms == f_.length && data_pairs_ == Pairs::kOthers &&
      data_.row.stride() == 2 && rows.size() == kLane &&
      data_.row.InOneRun(rows)) {
    const T* const from =
        reinterpret_cast<const T*>(data) + data_.row.At(rows.begin);
    data_.column.ForRuns({0, f_.terms}, [&](int64_t at, int64_t term,
                                            int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        packed.Set(term + i, LoadPairs(from + at + i * data_.column.stride()));
      }
    });
    return packed;
  }
  const Packer<T> packer{data_, native_, load_};
  for (int64_t plane = 0; plane < (halved_ ? 1 : 2); ++plane) {
    T* const to = plane == 0 ? packed.re : packed.im;
    const int64_t terms = plane < f_.planes ? f_.terms : 0;
    if (terms > 0) {
      packer.Pack(data, rows, {plane * terms, (plane + 1) * terms}, to, kLane);
    }
    std::fill(to + terms * kLane, to + f_.length * kLane, T{});
  }
  if (halved_) return {packed.re, packed.re + kLane, 2 * kLane};
  return packed;
}

template <typename T>
typename FourierProduct<T>::Planes FourierProduct<T>::PackPairs(
    const char* data, const Block& block, const Planes& packed) const {
  const Matrix pairs = {data_.dtype, data_.item_size, Axis(), data_.row,
                        Axis({{2 * f_.terms, 1}})};
  Packer<T>{pairs, native_, load_}.Pack(
      data, {block.first, block.first + block.count}, {0, 2 * f_.terms},
      packed.re, kLane);
  return InTurn(packed);
}

// The half-length transform took each pair of real terms (x[2j], x[2j + 1]) as
// the complex number x[2j] + i x[2j + 1]. The transform of the terms at even
// places is the conjugate-symmetric part of its result, and i times that of the
// terms at odd places is the rest. Rotating the latter and adding both gives
// the transform of all terms.
template <typename T>
void FourierProduct<T>::Split(const Planes& half, const Planes& out) const {
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
void FourierProduct<T>::StoreBlock(const Planes& from,
                                   const std::array<T*, 2>& result,
                                   const Block& block,
                                   const Spacing& spacing) const {
  const int64_t first = block.first, count = block.count;
  if (kept_pairs_ != Pairs::kNone) {
    return StorePairs(from.re, f_.kept, rows_, {first, first + count},
                      kept_pairs_, kept_step_, result[0]);
  }
  for (int64_t plane = 0; plane < f_.out_planes; ++plane) {
    const T* const kept = plane == 0 ? from.re : from.im;
    if (adjacent_rows_) {
      const Mask<T> mask(count);
      T* const to = block.to + plane * spacing.planes;
      for (int64_t k = 0; k < f_.kept; ++k) {
        mask.Store(to + k * spacing.step, Load<Vector<T>>(kept + k * kLane));
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
