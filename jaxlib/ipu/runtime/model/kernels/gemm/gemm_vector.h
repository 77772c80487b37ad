// A vector-matrix product on one thread; included only by gemm_*.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_VECTOR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_VECTOR_H_

#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemv.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// Dot products of at most so many terms are added up over the lanes of as many
// of them together. Measured, of 1000 rows with AVX-512: of 16, 50, 128, 256
// and 512 terms they took 0.71, 0.56, 0.96, 1.02 and 1.08 of the time of four
// together.
inline constexpr int64_t kFewDotTerms = 200;

}  // namespace gemm

template <typename T>
void Gemm<T>::SumVector(const char* lhs, const char* rhs, int64_t row,
                        Range columns_of, Range terms_of, T* to,
                        bool add) const {
  const Matrix& a = p_.lhs;
  const int64_t n = columns_of.size(), k = terms_of.size();
  // The right operand's axes are even.
  const struct {
    int64_t row, column;
    uint32_t item_size;
  } b = {p_.rhs.row.stride(), p_.rhs.column.stride(), p_.rhs.item_size};
  rhs += (columns_of.begin * b.row + terms_of.begin * b.column) * b.item_size;
  lhs += a.row.At(row) * a.item_size;
  gemm::Buffers& buffers = gemm::ThreadBuffers();
  const T* x = reinterpret_cast<const T*>(lhs) + terms_of.begin;
  if (!lhs_native_ || !a.column.even() || a.column.stride() != 1) {
    T* dense = buffers.vector.Get<T>(k);
    a.column.ForRuns(terms_of, [&](int64_t at, int64_t first, int64_t count) {
      load_lhs_(lhs + at * a.item_size, a.column.stride(), count,
                dense + first);
    });
    x = dense;
  }
  constexpr int64_t kBlock = 2048, kGroup = 4;
  if (rhs_native_ && b.row == 1 && n > 1 && n <= 4 * kLanes<T>) {
    const auto sum = n <= kLanes<T>       ? ScaledNarrowRows<T, 1>
                     : n <= 2 * kLanes<T> ? ScaledNarrowRows<T, 2>
                     : n <= 3 * kLanes<T> ? ScaledNarrowRows<T, 3>
                                          : ScaledNarrowRows<T, 4>;
    return sum(x, reinterpret_cast<const T*>(rhs), b.column, k, n, to, add);
  }
  if ((b.row == 1 && n > 1) || (b.column != 1 && n >= kLanes<T>)) {
    // Sum rows of the matrix, each scaled by one element of the vector.
    for (int64_t j = 0; j < n; j += kBlock) {
      const int64_t columns = std::min(kBlock, n - j);
      for (int64_t i = 0; i < k;) {
        const int64_t group = k - i < kGroup ? 1 : kGroup;
        const char* from = rhs + (j * b.row + i * b.column) * b.item_size;
        const T* rows = reinterpret_cast<const T*>(from);
        int64_t step = b.column;
        if (!rhs_native_ || b.row != 1) {
          T* dense = buffers.rows.Get<T>(kGroup * kBlock);
          for (int64_t r = 0; r < group; ++r) {
            load_rhs_(from + r * b.column * b.item_size, b.row, columns,
                      dense + r * kBlock);
          }
          rows = dense;
          step = kBlock;
        }
        const bool more = add || i > 0;
        const auto sum =
            group == 1 ? more ? ScaledRows<T, 1, true> : ScaledRows<T, 1, false>
            : more     ? ScaledRows<T, kGroup, true>
                       : ScaledRows<T, kGroup, false>;
        sum(x + i, rows, step, columns, to + j);
        i += group;
      }
    }
    return;
  }
  if (!add) std::fill_n(to, n, T{});
  // Dot products with the columns, which are copied if they are not contiguous.
  const bool direct = rhs_native_ && b.column == 1;
  const int64_t terms = direct ? k : kBlock;
  for (int64_t i = 0; i < k; i += terms) {
    const int64_t size = std::min(terms, k - i);
    int64_t j = 0;
    if (direct && k <= gemm::kFewDotTerms) {
      const T* const columns = reinterpret_cast<const T*>(rhs);
      for (; j + kLanes<T> <= n; j += kLanes<T>) {
        AddDotsOfEach<T, true>(x, 0, columns + j * b.row, b.row, k, to + j);
      }
    }
    for (; j < n; j += kGroup) {
      const int64_t group = std::min(kGroup, n - j);
      const char* from = rhs + (j * b.row + i * b.column) * b.item_size;
      const T* columns = reinterpret_cast<const T*>(from);
      int64_t step = b.row;
      if (!direct) {
        T* dense = buffers.rows.Get<T>(kGroup * kBlock);
        for (int64_t c = 0; c < group; ++c) {
          load_rhs_(from + c * b.row * b.item_size, b.column, size,
                    dense + c * kBlock);
        }
        columns = dense;
        step = kBlock;
      }
      if (group == kGroup) {
        AddDots<T, kGroup>(x + i, columns, step, size, to + j);
        continue;
      }
      for (int64_t c = 0; c < group; ++c) {
        AddDots<T, 1>(x + i, columns + c * step, step, size, to + j + c);
      }
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_VECTOR_H_
