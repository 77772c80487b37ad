// Many products of a few elements each; included only by gemm_*.cc.
//
// For products of 3 x 3 matrices, or of many vectors with one other vector, the
// overhead around a product exceeds its multiply-adds. Vectors therefore hold
// the same element of several products (structure of arrays), and operands are
// transposed into that order a block of products at a time.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_SMALL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_SMALL_H_

#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// Products per block: a block of each matrix's elements fits into the cache.
inline constexpr int64_t kSide = 64;
// Up to this many elements in all three matrices, transposing them takes no
// longer than the set-up of the general algorithm (a 4 x 4 product has 48); a
// guess.
inline constexpr int64_t kFewElements = 64;
// A single row with at most this many terms, a guess: its columns become
// products.
inline constexpr int64_t kFewTerms = 8;

}  // namespace gemm

// Returns the product unchanged, or with each of its columns as a product: for
// few terms and many columns that are not contiguous.
template <typename T>
NormalProduct Gemm<T>::ByColumns(const NormalProduct& p) {
  if (p.m > 1 || p.batch > 1 || p.k > gemm::kFewTerms ||
      p.rhs.row.stride() == 1) {
    return p;
  }
  NormalProduct cut = p;
  cut.batch = p.n;
  cut.n = 1;
  cut.lhs.batch = Axis({{p.n, 0}});
  cut.rhs.batch = p.rhs.row;
  cut.result.batch = p.result.column;
  cut.rhs.row = cut.result.column = Axis();
  return cut;
}

template <typename T>
bool Gemm<T>::IsSmall(const NormalProduct& p) {
  const int64_t few = gemm::kFewElements;
  return p.batch >= kLanes<T> && p.m <= few && p.n <= few && p.k <= few &&
         p.k > 0 && p.m * p.k + p.k * p.n + p.m * p.n <= few;
}

template <typename T>
void Gemm<T>::RunSmall(const char* lhs, const char* rhs, char* result,
                       ThreadPool& threads) const {
  const int64_t m = small_.m, n = small_.n, k = small_.k;
  const double work = static_cast<double>(m * k + k * n + m * n) * gemm::kSide;
  threads.For(
      gemm::CeilDiv(small_.batch, gemm::kSide),
      std::max<int64_t>(1, gemm::kWorthThread / (8 * work)),
      [&](int64_t begin, int64_t end) {
        gemm::Buffers& buffers = gemm::ThreadBuffers();
        T* a = buffers.rows.Get<T>(m * k * gemm::kSide);
        T* b = buffers.columns.Get<T>(k * n * gemm::kSide);
        T* c = buffers.result.Get<T>(m * n * gemm::kSide);
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * gemm::kSide;
          const Range side = {first,
                              std::min(small_.batch, first + gemm::kSide)};
          PackSide(small_.lhs, load_lhs_, lhs, m, side, block == begin, a);
          PackSide(small_.rhs, load_rhs_, rhs, n, side, block == begin, b);
          SumSide(a, b, side.size(), c);
          StoreSide(c, side, result);
        }
      });
}

// Loads all elements of an operand for a range of products, grouped by element.
// An operand shared by all products is loaded only for the first block.
template <typename T>
void Gemm<T>::PackSide(const Matrix& of, LoadRun<T> load, const char* from,
                       int64_t rows, Range side, bool first, T* to) const {
  const bool same = of.batch.even() && of.batch.stride() == 0;
  if (same && !first) return;
  // The last block may be partial, but a shared operand is loaded for a full
  // block.
  const Range wanted = same ? Range{0, gemm::kSide} : side;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t t = 0; t < small_.k; ++t) {
      const int64_t at = of.row.At(i) + of.column.At(t);
      of.batch.ForRuns(wanted, [&](int64_t start, int64_t done, int64_t count) {
        load(from + (at + start) * of.item_size, of.batch.stride(), count,
             to + done);
      });
      to += gemm::kSide;
    }
  }
}

// Computes whole vectors of products; lanes beyond `size` are undefined.
template <typename T>
void Gemm<T>::SumSide(const T* a, const T* b, int64_t size, T* c) const {
  constexpr int64_t kSide = gemm::kSide;
  for (int64_t i = 0; i < small_.m; ++i) {
    for (int64_t j = 0; j < small_.n; ++j) {
      const T* x = a + i * small_.k * kSide;
      const T* y = b + j * small_.k * kSide;
      for (int64_t v = 0; v < size; v += kLanes<T>) {
        Vector<T> sum = {};
        for (int64_t t = 0; t < small_.k * kSide; t += kSide) {
          sum = MultiplyAdd<T>(Load<Vector<T>>(x + t + v),
                               Load<Vector<T>>(y + t + v), sum);
        }
        Store(c + v, sum);
      }
      c += kSide;
    }
  }
}

template <typename T>
void Gemm<T>::StoreSide(const T* from, Range side, char* result) const {
  const Matrix& to = small_.result;
  for (int64_t i = 0; i < small_.m; ++i) {
    for (int64_t j = 0; j < small_.n; ++j) {
      const int64_t at = to.row.At(i) + to.column.At(j);
      to.batch.ForRuns(side, [&](int64_t start, int64_t done, int64_t count) {
        const int64_t step = to.batch.stride();
        char* const place = result + (at + start) * to.item_size;
        if (!small_.adds) return store_(from + done, count, place, step);
        T* const sums = reinterpret_cast<T*>(place);
        for (int64_t s = 0; s < count; ++s) sums[s * step] += from[done + s];
      });
      from += gemm::kSide;
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_SMALL_H_
