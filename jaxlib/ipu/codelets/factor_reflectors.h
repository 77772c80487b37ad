// Factorisations by Householder reflectors; see isa.FactorKind.

#ifndef JAXLIB_IPU_CODELETS_FACTOR_REFLECTORS_H_
#define JAXLIB_IPU_CODELETS_FACTOR_REFLECTORS_H_

#include "jaxlib/ipu/codelets/factor_columns.h"

namespace ipu::model::IPU_SIMD_NS {

// `v` is scratch for a column.
template <typename T>
void Qr(const Columns<T>& a, T* v, T* taus) {
  const int64_t k = std::min(a.rows, a.columns);
  for (int64_t j = 0; j < k; ++j) {
    const Reflector<T> r = MakeReflector(a[j], j, a.rows, a.step, v);
    taus[j] = r.tau;
    Pack(a[j], r, v, j, a.rows);
    Reflect(a, v, r.tau, j, j + 1, a.columns);
  }
}

// Replaces the columns by orthonormal ones. `v` is scratch for a column, `taus`
// for two rows.
template <typename T>
void Orthonormal(const Columns<T>& a, T* v, T* taus) {
  const int64_t n = a.columns;
  Qr(a, v, taus);
  std::fill(v, v + a.step, T{0});
  for (int64_t j = n - 1; j >= 0; --j) {
    T* const x = a[j];
    const T tau = taus[j], sign = x[j] < 0 ? -1 : 1;
    v[j] = 1;
    std::copy(x + j + 1, x + a.rows, v + j + 1);
    Reflect(a, v, tau, j, j + 1, n);
    std::fill(x, x + j, T{0});
    for (int64_t i = j; i < a.rows; ++i) x[i] = -sign * tau * v[i];
    x[j] += sign;
  }
}

// Applies I - tau v v^T from the right to rows [top, a.rows) of columns
// [first, a.columns). `v` has an element per column; `w` is scratch for a
// column.
template <typename T>
void ReflectFromRight(const Columns<T>& a, const T* v, T tau, int64_t first,
                      int64_t top, T* w) {
  if (tau == 0) return;
  const int64_t begin = VectorOf<T>(top);
  std::fill(w, w + a.step, T{0});
  ByFour(first, a.columns, [&]<int kCount>(int64_t c) {
    Combine<kCount>(v + c, a[c], a.step, begin, a.step, w);
  });
  ByFour(first, a.columns, [&]<int kCount>(int64_t c) {
    T factors[kCount];
    for (int k = 0; k < kCount; ++k) factors[k] = -tau * v[c + k];
    AddTo<kCount>(factors, w, a[c], a.step, top, a.rows);
  });
}

// `v` and `w` are scratch for a column each.
template <typename T>
void Hessenberg(const Columns<T>& a, T* v, T* w, T* taus) {
  const int64_t n = a.rows;
  for (int64_t j = 0; j + 1 < n; ++j) {
    const Reflector<T> r = MakeReflector(a[j], j + 1, n, a.step, v);
    taus[j] = r.tau;
    Pack(a[j], r, v, j + 1, n);
    ReflectFromRight(a, v, r.tau, j + 1, 0, w);
    Reflect(a, v, r.tau, j + 1, j + 1, n);
  }
}

// Updates by Q^T A Q = A - v w^T - w v^T with
// w = tau (A v - (tau / 2) (v^T A v) v). Finally zeros the elements above the
// diagonal. `v` and `w` are scratch for two columns each.
//
// Columns are updated just before the next reflector is multiplied by them, so
// that they pass through the first-level cache once for each reflector.
template <typename T>
void Tridiagonal(const Columns<T>& a, T* v, T* w, T* taus) {
  const int64_t n = a.rows;
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t r = c + 1; r < n; ++r) a[r][c] = a[c][r];
  }
  // Of the update that columns still need, in rows from `top`.
  T *old_v = v + a.step, *old_w = w + a.step;
  int64_t top = n;
  const auto update = [&]<int kCount>(int64_t c) {
    if (top == n) return;
    std::array<Term<kCount, T>, 2> terms = {{{old_v, {}}, {old_w, {}}}};
    for (int k = 0; k < kCount; ++k) {
      terms[0].factors[k] = -old_w[c + k];
      terms[1].factors[k] = -old_v[c + k];
    }
    AddTerms<2, kCount, T>(terms, a[c], a.step, top, n);
  };
  for (int64_t j = 0; j + 1 < n; ++j) {
    update.template operator()<1>(j);
    const Reflector<T> r = MakeReflector(a[j], j + 1, n, a.step, v);
    taus[j] = r.tau;
    Pack(a[j], r, v, j + 1, n);
    const int64_t begin = VectorOf<T>(j + 1);
    std::fill(w, w + a.step, T{0});
    ByFour(j + 1, n, [&]<int kCount>(int64_t c) {
      update.template operator()<kCount>(c);
      if (r.tau != 0) Combine<kCount>(v + c, a[c], a.step, begin, a.step, w);
    });
    top = n;
    if (r.tau == 0) continue;
    T both;
    Products<1>(v, w, 0, j + 1, a.step, &both);
    for (int64_t i = j + 1; i < n; ++i) {
      w[i] = r.tau * (w[i] - r.tau / 2 * both * v[i]);
    }
    top = j + 1;
    std::swap(v, old_v);
    std::swap(w, old_w);
  }
  update.template operator()<1>(n - 1);
  for (int64_t c = 1; c < n; ++c) std::fill(a[c], a[c] + c, T{0});
}

// `row` is scratch for two rows, padded to whole vectors.
template <typename T>
void Bidiagonal(const Columns<T>& a, T* v, T* w, T* row) {
  const int64_t m = a.rows, n = a.columns;
  const int64_t step = Columns<T>::Padded(n);
  T* const across = row + step;
  for (int64_t j = 0; j < n; ++j) {
    const Reflector<T> down = MakeReflector(a[j], j, m, a.step, v);
    std::fill(a[j] + j, a[j] + m, T{0});
    a[j][j] = down.beta;
    Reflect(a, v, down.tau, j, j + 1, n);
    if (j + 1 == n) break;
    for (int64_t c = 0; c < n; ++c) row[c] = a[c][j];
    const Reflector<T> right = MakeReflector(row, j + 1, n, step, across);
    for (int64_t c = j + 1; c < n; ++c) a[c][j] = 0;
    a[j + 1][j] = right.beta;
    ReflectFromRight(a, across, right.tau, j + 1, j + 1, w);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_FACTOR_REFLECTORS_H_
