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

// Inverts a lower triangular matrix in place. What lies above the diagonal is
// not read.
//
// The inverse times the matrix is the identity, so column j of the inverse is
// that of the identity less later columns of it, times elements of the matrix.
// These are known from the beginning: only the last of the columns is waited
// for. (By rows, each element of the inverse waits for another one.)
template <typename T>
void InvertTriangle(const Columns<T>& a, bool unit) {
  const int64_t n = a.rows;
  for (int64_t j = n - 1; j >= 0; --j) {
    T* const x = a[j];
    const T pivot = unit ? T{1} : x[j];
    const int64_t first = VectorOf<T>(j);
    // Elements of the matrix are replaced after they have been read.
    for (int64_t i = VectorOf<T>(n - 1); i >= first; i -= kLanes<T>) {
      const int64_t end = std::min(n, i + kLanes<T>);
      // Two sums, of which each waits only for half of the products. Rows
      // before j are dropped in the end.
      Vector<T> sum = {}, other = {};
      if (i == first) sum = Mask<T>(j - i + 1).Select(Broadcast(T{1}), sum);
      for (int64_t k = end - 1; k > j; --k) {
        const auto next =
            MultiplyAdd<T>(Broadcast(-x[k]), Load<Vector<T>>(a[k] + i), other);
        // Rows before k stay as they are, even if x[k] is NaN.
        const auto kept = k > i ? Mask<T>(k - i).Select(other, next) : next;
        other = sum;
        sum = kept;
      }
      sum += other;
      sum /= Broadcast(pivot);
      if (j > i) sum = Mask<T>(j - i).Select(Vector<T>{}, sum);
      if (end < i + kLanes<T>) {
        sum = Mask<T>(end - i).Select(sum, Vector<T>{});
      }
      Store(x + i, sum);
    }
    std::fill(x, x + first, T{0});
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_FACTOR_TRIANGLES_H_
