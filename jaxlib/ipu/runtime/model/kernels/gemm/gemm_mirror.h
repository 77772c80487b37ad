// Products with Fourier matrices take half the multiply-adds.
//
// The rows of such a matrix are one or two planes of J terms each, and the rows
// j and J - j of a plane are the same (cosines) or differ in sign (sines). So
// the terms of the other operand are added, or subtracted, in pairs while they
// are packed, and one row of each pair is left. What a matrix is shows when it
// is read: any other one is told after a few elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_MIRROR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_MIRROR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Columns of one of several matrices whose terms mirror each other alike.
template <typename T>
struct Mirrored {
  int64_t matrix;
  IndexRange columns;
  int64_t plane;            // J
  std::array<int, 2> sign;  // of each plane's pairs: 1 or -1
  bool sums;                // the first terms are not zero
  std::vector<T> rows;      // those that are left, dense

  int64_t kept() const { return plane / 2 + 1; }  // rows of a plane
  int64_t terms() const {
    return static_cast<int64_t>(rows.size()) / columns.size();
  }
};

// A matrix of `terms` rows in memory.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t terms, term_step, columns, column_step;

  T At(int64_t term, int64_t column) const {
    return data[term * term_step + column * column_step];
  }
};

// The signs of the planes of one column, 0 where both would do; false if its
// terms do not mirror each other.
template <typename T>
bool SignsOf(const MatrixView<T>& m, int64_t plane, int64_t column,
             std::array<int, 2>& signs) {
  signs = {};
  for (int64_t p = 0; p * plane < m.terms; ++p) {
    for (int64_t j = 1; j < plane - j; ++j) {
      const T a = m.At(p * plane + j, column);
      const T b = m.At(p * plane + plane - j, column);
      if (a == 0 && b == 0) continue;
      const int sign = a == b ? 1 : a == -b ? -1 : 0;
      if (sign == 0 || sign == -signs[p]) return false;
      signs[p] = sign;
    }
  }
  return true;
}

// Adds the groups of columns of a matrix of planes of `plane` terms; false if
// it is no Fourier matrix.
template <typename T>
bool AddMirroredColumns(const MatrixView<T>& m, int64_t plane, int64_t matrix,
                        std::vector<Mirrored<T>>& parts) {
  constexpr size_t kMostGroups = 4;
  const size_t before = parts.size();
  for (int64_t c = 0; c < m.columns; ++c) {
    std::array<int, 2> signs;
    if (!SignsOf(m, plane, c, signs)) return false;
    bool sums = false;
    for (int64_t p = 0; p < m.terms; p += plane) sums |= m.At(p, c) != 0;
    bool fits = parts.size() > before && parts.back().sums == sums;
    for (int p = 0; fits && p < 2; ++p) {
      fits = signs[p] * parts.back().sign[p] >= 0;
    }
    if (!fits) {
      if (parts.size() == before + kMostGroups) return false;
      parts.push_back({matrix, {c, c}, plane, signs, sums, {}});
    }
    parts.back().columns.end = c + 1;
    for (int p = 0; p < 2; ++p) {
      if (signs[p] != 0) parts.back().sign[p] = signs[p];
    }
  }
  for (size_t i = before; i < parts.size(); ++i) {
    Mirrored<T>& part = parts[i];
    for (int64_t p = 0; p < m.terms; p += plane) {
      for (int64_t j = 0; j < part.kept(); ++j) {
        for (int64_t c = part.columns.begin; c < part.columns.end; ++c) {
          part.rows.push_back(m.At(p + j, c));
        }
      }
    }
  }
  return true;
}

// Whether there are cosines and sines. Where columns are zeros alone, a pair's
// sum that is infinite would make NaNs; and rows that are merely the same, as
// of a mean, say nothing of sums of two large numbers.
template <typename T>
bool AreFourier(const std::vector<Mirrored<T>>& parts) {
  bool sums = false, sines = false;
  for (const Mirrored<T>& part : parts) {
    sums |= part.sums;
    for (int sign : part.sign) sines |= sign < 0;
  }
  return sums && sines;
}

// Adds up the terms of `count` rows or columns in pairs: those of term k begin
// at from[k * count], those of what is left of them at to[k * count].
template <typename T>
void AddPairs(const T* from, int64_t count, const Mirrored<T>& mirrored,
              T* to) {
  using Lanes = Vector<T>;
  const int64_t whole = (count - 1) / kLanes<T> * kLanes<T>;
  const Mask<T> mask(count - whole);
  const int64_t plane = mirrored.plane;
  const int64_t planes = mirrored.terms() / mirrored.kept();
  for (int64_t p = 0; p < planes; ++p, from += plane * count) {
    const Lanes sign = Broadcast<T>(mirrored.sign[p] < 0 ? -1 : 1);
    for (int64_t j = 0; j < mirrored.kept(); ++j, to += count) {
      const T* const first = from + j * count;
      if (j == 0 || 2 * j == plane) {
        for (int64_t i = 0; i < whole; i += kLanes<T>) {
          Store(to + i, Load<Lanes>(first + i));
        }
        mask.Store(to + whole, mask.Load(first + whole));
        continue;
      }
      const T* const second = from + (plane - j) * count;
      for (int64_t i = 0; i < whole; i += kLanes<T>) {
        Store(to + i, MultiplyAdd<T>(sign, Load<Lanes>(second + i),
                                     Load<Lanes>(first + i)));
      }
      mask.Store(to + whole, MultiplyAdd<T>(sign, mask.Load(second + whole),
                                            mask.Load(first + whole)));
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_MIRROR_H_
