// Products with Fourier matrices at half the number of multiply-adds.
//
// Along its terms such a matrix has one or two planes of J rows, and rows j and
// J - j of a plane are equal (cosines) or differ in sign (sines). The
// corresponding terms of the other operand are therefore added or subtracted in
// pairs while they are packed, and one row of each pair remains. Matrices are
// recognised by their values when a product runs; any other matrix is rejected
// after a few elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_MIRROR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_MIRROR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Columns of one of several matrices whose terms have the same symmetry.
template <typename T>
struct Mirrored {
  int64_t matrix;
  IndexRange columns;
  int64_t plane;            // J
  std::array<int, 2> sign;  // of the pairs of each plane: 1 or -1
  bool sums;                // the first term of a plane is not zero
  std::vector<T> rows;      // the rows that remain, dense

  int64_t kept() const { return plane / 2 + 1; }  // rows that remain per plane
  int64_t terms() const {
    return static_cast<int64_t>(rows.size()) / columns.size();
  }
};

// A strided matrix with `terms` rows.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t terms, term_step, columns, column_step;

  T At(int64_t term, int64_t column) const {
    return data[term * term_step + column * column_step];
  }
};

// Sets the sign of each plane of one column, or 0 if either fits. Returns false
// if the terms are not symmetric.
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

// Appends the groups of columns with the same symmetry of a matrix with planes
// of `plane` terms. Returns false if it is not a Fourier matrix.
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

// Whether the parts contain both cosines and sines. Matrices that are merely
// symmetric are rejected because adding terms before multiplying may overflow:
// for columns of zeros an infinite sum would give NaN, and equal rows (a mean)
// may be applied to numbers whose pairwise sums overflow.
template <typename T>
bool AreFourier(const std::vector<Mirrored<T>>& parts) {
  bool sums = false, sines = false;
  for (const Mirrored<T>& part : parts) {
    sums |= part.sums;
    for (int sign : part.sign) sines |= sign < 0;
  }
  return sums && sines;
}

// Adds the terms of `count` rows or columns in pairs. Term k is at
// from[k * count]; the k-th term that remains is written to to[k * count].
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
