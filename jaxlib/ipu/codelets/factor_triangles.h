// Cholesky and LU factorisations and inverses of triangular matrices; see
// isa.FactorKind.

#ifndef JAXLIB_IPU_CODELETS_FACTOR_TRIANGLES_H_
#define JAXLIB_IPU_CODELETS_FACTOR_TRIANGLES_H_

#include <utility>

#include "jaxlib/ipu/codelets/factor_columns.h"

namespace ipu::model::IPU_SIMD_NS {

// Zeros the elements above the diagonal.
template <typename T>
void ClearAbove(const Columns<T>& a) {
  for (int64_t c = 1; c < a.columns; ++c) {
    std::fill(a[c], a[c] + std::min(c, a.rows), T{0});
  }
}

// Right-looking: scales a column, then subtracts its outer product from the
// rest. Does not read the elements above the diagonal.
template <typename T>
void Cholesky(const Columns<T>& a) {
  const int64_t n = a.rows;
  for (int64_t j = 0; j < n; ++j) {
    T* const x = a[j];
    if (!(x[j] > 0)) {
      for (int64_t c = 0; c < n; ++c) {
        std::fill(a[c] + c, a[c] + n, std::numeric_limits<T>::quiet_NaN());
      }
      break;
    }
    const T root = std::sqrt(x[j]);
    x[j] = root;
    for (int64_t i = j + 1; i < n; ++i) x[i] /= root;
    ByFour(j + 1, n, [&]<int kCount>(int64_t c) {
      T factors[kCount];
      for (int k = 0; k < kCount; ++k) factors[k] = -x[c + k];
      AddTo<kCount>(factors, x, a[c], a.step, c, n);
    });
  }
  ClearAbove(a);
}

// |x|, lane by lane; keeps zeros and NaNs unchanged.
template <typename T>
inline Vector<T> Size(const T* x) {
  const auto v = Load<Vector<T>>(x);
  return v < 0 ? -v : v;
}

// The row of the largest |x| from row j on, the first one if several are equal;
// j if any is NaN. The padding must be zero.
template <typename T>
int64_t FindPivot(const T* x, int64_t j, int64_t step) {
  // Rows before the next whole vector are handled one by one.
  const int64_t begin = std::min(VectorOf<T>(j + kLanes<T> - 1), step);
  T most = -1;
  bool unordered = false;
  const auto see = [&](T size) {
    unordered |= size != size;
    most = std::max(most, size);
  };
  for (int64_t i = j; i < begin; ++i) see(std::abs(x[i]));
  Vector<T> largest = Broadcast(most);
  Vector<SignedBits<T>> unequal = {};
  for (int64_t i = begin; i < step; i += kLanes<T>) {
    const Vector<T> size = Size(x + i);
    unequal |= size != size;
    largest = size > largest ? size : largest;
  }
  for (int k = 0; k < kLanes<T>; ++k) see(largest[k]);
  if (unordered || Any(unequal)) return j;
  for (int64_t i = j; i < begin; ++i) {
    if (std::abs(x[i]) == most) return i;
  }
  for (int64_t i = begin; i < step; i += kLanes<T>) {
    const uint32_t found = LaneBits<T>(Size(x + i) == Broadcast(most));
    if (found != 0) return i + __builtin_ctz(found);
  }
  return j;
}

// `l` is scratch for a column. `order` holds row indices and is permuted like
// the rows.
template <typename T>
void Lu(const Columns<T>& a, T* l, int32_t* pivots, int32_t* order) {
  const int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  std::fill(l, l + a.step, T{0});
  for (int64_t j = 0; j < k; ++j) {
    T* const x = a[j];
    const int64_t pivot = FindPivot(x, j, a.step);
    pivots[j] = static_cast<int32_t>(pivot);
    if (pivot != j) {
      for (int64_t c = 0; c < n; ++c) std::swap(a[c][j], a[c][pivot]);
      std::swap(order[j], order[pivot]);
    }
    if (const T head = x[j]; head != 0) {
      for (int64_t i = j + 1; i < m; ++i) x[i] /= head;
    }
    std::copy(x + j + 1, x + m, l + j + 1);
    ByFour(j + 1, n, [&]<int kCount>(int64_t c) {
      T factors[kCount];
      for (int i = 0; i < kCount; ++i) factors[i] = -a[c + i][j];
      AddTo<kCount>(factors, l, a[c], a.step, j + 1, m);
    });
  }
}

// Inverts a lower triangular matrix by forward substitution on all columns of
// the inverse at once. `inverse` is scratch of the size of `a`.
template <typename T>
void InvertTriangle(const Columns<T>& a, bool unit, T* inverse) {
  const int64_t n = a.rows;
  if (unit) {
    for (int64_t c = 0; c < n; ++c) a[c][c] = 1;
  }
  ClearAbove(a);
  std::fill(inverse, inverse + n * a.step, T{0});
  for (int64_t c = 0; c < n; ++c) inverse[c * a.step + c] = 1;
  // Row i of the inverse is final once all rows before it have been subtracted.
  for (int64_t i = 0; i < n; ++i) {
    const T pivot = a[i][i];
    ByFour(0, i + 1, [&]<int kCount>(int64_t c) {
      T factors[kCount];
      for (int k = 0; k < kCount; ++k) {
        T& x = inverse[(c + k) * a.step + i];
        x /= pivot;
        factors[k] = -x;
      }
      AddTo<kCount>(factors, a[i], inverse + c * a.step, a.step, i + 1, n);
    });
  }
  std::copy(inverse, inverse + n * a.step, a.data);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_FACTOR_TRIANGLES_H_
