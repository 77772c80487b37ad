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
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// Products per block: a block of each matrix's elements fits into the cache.
inline constexpr int64_t kSide = 64;
// Up to this many elements in all three matrices, transposing them takes no
// longer than the set-up of the general algorithm. 4 x 4 products have 48;
// 5,000 products of 3 x 3 by 3 elements took 35 us instead of 445. The limit
// itself is a guess.
inline constexpr int64_t kFewElements = 64;
// A single row with at most this many terms: its columns become products. A
// guess; of 65,536 columns of 3 terms, the product took 81 us instead of 332.
inline constexpr int64_t kFewTerms = 8;

// The sums of the products of `terms` elements of x and y, which are `x_step`
// and `y_step` sides apart, for whole vectors; lanes beyond `size` are
// undefined.
template <typename T>
void SumSide(const T* x, int64_t x_step, const T* y, int64_t y_step,
             int64_t terms, int64_t size, T* sums) {
  for (int64_t v = 0; v < size; v += kLanes<T>) {
    Vector<T> sum = {};
    for (int64_t t = 0; t < terms; ++t) {
      sum = MultiplyAdd<T>(Load<Vector<T>>(x + t * x_step * kSide + v),
                           Load<Vector<T>>(y + t * y_step * kSide + v), sum);
    }
    Store(sums + v, sum);
  }
}

// Operands of at least this many elements are transposed as a whole: a guess,
// the side of a square of TransposeRun.
inline constexpr int64_t kWorthTransposing = 8;

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

// One matrix of each product. In a block, its elements are in the order of
// their places in memory if these are adjacent, otherwise row by row.
template <typename T>
struct Gemm<T>::Small {
  Small(const Matrix& matrix, int64_t rows, int64_t columns, bool native)
      : matrix(matrix), rows(rows), columns(columns), row(columns) {
    const auto is = [](int64_t extent, const Axis& axis, int64_t stride) {
      return extent == 1 || (axis.even() && axis.stride() == stride);
    };
    const bool by_columns =
        is(rows, matrix.row, 1) && is(columns, matrix.column, rows);
    const bool adjacent = by_columns || (is(columns, matrix.column, 1) &&
                                         is(rows, matrix.row, columns));
    whole = adjacent && native && matrix.batch.even();
    if (whole && by_columns) {
      row = 1;
      column = rows;
    }
  }

  int64_t size() const { return rows * columns; }
  // In a block, of the first product.
  int64_t At(int64_t i, int64_t j) const {
    return (i * row + j * column) * gemm::kSide;
  }

  const Matrix& matrix;
  const int64_t rows, columns;
  int64_t row, column = 1;  // steps in a block, in elements of a product
  bool whole;  // adjacent elements of type T: moved without regard to the order
};

template <typename T>
void Gemm<T>::RunSmall(const char* lhs, const char* rhs, char* result,
                       ThreadPool& threads) const {
  const Small a(small_.lhs, small_.m, small_.k, lhs_native_);
  const Small b(small_.rhs, small_.n, small_.k, rhs_native_);
  const Small c(small_.result, small_.m, small_.n,
                small_.result.item_size == sizeof(T) && !small_.adds);
  const double work =
      static_cast<double>(a.size() + b.size() + c.size()) * gemm::kSide;
  threads.For(gemm::CeilDiv(small_.batch, gemm::kSide),
              std::max<int64_t>(1, gemm::kWorthThread / (8 * work)),
              [&](int64_t begin, int64_t end) {
                gemm::Buffers& buffers = gemm::ThreadBuffers();
                const auto get = [](Scratch& scratch, const Small& of) {
                  return scratch.Get<T>(of.size() * gemm::kSide + kLanes<T>);
                };
                T* x = get(buffers.rows, a);
                T* y = get(buffers.columns, b);
                T* sums = get(buffers.result, c);
                for (int64_t block = begin; block < end; ++block) {
                  const int64_t first = block * gemm::kSide;
                  const Range side = {
                      first, std::min(small_.batch, first + gemm::kSide)};
                  PackSide(a, load_lhs_, lhs, side, block == begin, x);
                  PackSide(b, load_rhs_, rhs, side, block == begin, y);
                  for (int64_t i = 0; i < small_.m; ++i) {
                    for (int64_t j = 0; j < small_.n; ++j) {
                      gemm::SumSide(x + a.At(i, 0), a.column, y + b.At(j, 0),
                                    b.column, small_.k, side.size(),
                                    sums + c.At(i, j));
                    }
                  }
                  StoreSide(c, sums, side, result);
                }
              });
}

// Loads all elements of an operand for a range of products, grouped by element.
// An operand shared by all products is loaded only for the first block.
template <typename T>
void Gemm<T>::PackSide(const Small& of, LoadRun<T> load, const char* from,
                       Range side, bool first, T* to) const {
  const Matrix& matrix = of.matrix;
  const int64_t step = matrix.batch.stride();
  const bool same = matrix.batch.even() && step == 0;
  if (same && !first) return;
  // The last block may be partial, but a shared operand is loaded for a full
  // block.
  const Range wanted = same ? Range{0, gemm::kSide} : side;
  if (of.whole && of.size() >= gemm::kWorthTransposing) {
    return TransposeRun(reinterpret_cast<const T*>(from) + wanted.begin * step,
                        step, wanted.size(), of.size(), to, gemm::kSide);
  }
  for (int64_t i = 0; i < of.rows; ++i) {
    for (int64_t t = 0; t < of.columns; ++t) {
      const int64_t at = matrix.row.At(i) + matrix.column.At(t);
      T* const elements = to + of.At(i, t);
      matrix.batch.ForRuns(wanted,
                           [&](int64_t start, int64_t done, int64_t count) {
                             load(from + (at + start) * matrix.item_size, step,
                                  count, elements + done);
                           });
    }
  }
}

template <typename T>
void Gemm<T>::StoreSide(const Small& of, const T* from, Range side,
                        char* result) const {
  const Matrix& to = of.matrix;
  const int64_t step = to.batch.stride();
  if (of.whole && of.size() > 1 && step == of.size()) {
    const int64_t size = side.size() * step;
    T* const products = gemm::ThreadBuffers().partial.Get<T>(size + kLanes<T>);
    TransposeRun(from, gemm::kSide, step, side.size(), products, step);
    std::memcpy(result + side.begin * step * sizeof(T), products,
                size * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < of.rows; ++i) {
    for (int64_t j = 0; j < of.columns; ++j) {
      const int64_t at = to.row.At(i) + to.column.At(j);
      StoreBatch(small_, from + of.At(i, j), side, at, result);
    }
  }
}

template <typename T>
void Gemm<T>::StoreBatch(const NormalProduct& p, const T* from, Range side,
                         int64_t at, char* result) const {
  const Matrix& to = p.result;
  const int64_t step = to.batch.stride();
  to.batch.ForRuns(side, [&](int64_t start, int64_t done, int64_t count) {
    char* const place = result + (at + start) * to.item_size;
    if (!p.adds) return store_(from + done, count, place, step);
    T* const sums = reinterpret_cast<T*>(place);
    for (int64_t s = 0; s < count; ++s) sums[s * step] += from[done + s];
  });
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_SMALL_H_
