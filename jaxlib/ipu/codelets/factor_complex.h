// Real forms of complex matrices by Householder reflectors; see isa.FactorKind.
//
// A matrix of n complex columns has the real parts in its first n columns and
// the imaginary parts in the others.

#ifndef JAXLIB_IPU_CODELETS_FACTOR_COMPLEX_H_
#define JAXLIB_IPU_CODELETS_FACTOR_COMPLEX_H_

#include "jaxlib/ipu/codelets/factor_columns.h"

namespace ipu::model::IPU_SIMD_NS {

// Both parts of a number, or of a vector.
template <typename T>
struct Complex {
  T re, im;
};

template <typename T>
Complex<T> Times(Complex<T> x, Complex<T> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

// The reflector I - tau v v^H whose adjoint zeros a column below row `head`;
// beta is real.
template <typename T>
struct ComplexReflector {
  Complex<T> tau;
  T beta;

  bool IsIdentity() const { return tau.re == 0 && tau.im == 0; }
};

// Writes v over rows [0, step). v is zero above `head` and after `rows`, and
// one in row `head`.
template <typename T>
ComplexReflector<T> MakeReflector(Complex<const T*> x, int64_t head,
                                  int64_t rows, int64_t step, Complex<T*> v) {
  using Limits = std::numeric_limits<T>;
  const auto copy = [&](const T* from, T* to, T unit) {
    std::fill(to, to + head + 1, T{0});
    for (int64_t i = head + 1; i < rows; ++i) to[i] = from[i] / unit;
    std::fill(to + rows, to + step, T{0});
    T square;
    Products<1>(to, to, 0, head, step, &square);
    return square;
  };
  T unit = 1;
  T square = copy(x.re, v.re, unit) + copy(x.im, v.im, unit);
  Complex<T> alpha = {x.re[head], x.im[head]};
  if (alpha.re * alpha.re + alpha.im * alpha.im + square <
      Limits::min() / Limits::epsilon()) {
    // Scale first: squares of numbers this small lose most or all digits.
    T largest = 0;
    for (int64_t i = head; i < rows; ++i) {
      largest = std::max({largest, std::abs(x.re[i]), std::abs(x.im[i])});
    }
    if (largest > 0) unit = largest;
    square = copy(x.re, v.re, unit) + copy(x.im, v.im, unit);
    alpha = {alpha.re / unit, alpha.im / unit};
  }
  v.re[head] = 1;
  if (square + alpha.im * alpha.im == 0) {
    std::fill(v.re + head + 1, v.re + rows, T{0});
    std::fill(v.im + head + 1, v.im + rows, T{0});
    return {{0, 0}, x.re[head]};
  }
  const T norm = std::sqrt(alpha.re * alpha.re + alpha.im * alpha.im + square);
  const T beta = alpha.re >= 0 ? -norm : norm;
  // With t = im(alpha) / shift, alpha - beta is shift (1 + i t).
  const T shift = alpha.re - beta, t = alpha.im / shift;
  const T size = shift * (1 + t * t);
  const Complex<T> inverse = {1 / size, -t / size};
  for (int64_t i = head + 1; i < rows; ++i) {
    const Complex<T> found = Times({v.re[i], v.im[i]}, inverse);
    v.re[i] = found.re;
    v.im[i] = found.im;
  }
  return {{-shift / beta, -alpha.im / beta}, beta * unit};
}

// w = the product of columns [first, n) and v, whose elements belong to them,
// in rows from `top`, and, if that is inside a vector, some before it.
template <typename T>
void TimesVector(const Columns<T>& a, Complex<const T*> v, int64_t first,
                 int64_t top, Complex<T*> w) {
  const int64_t n = a.columns / 2, begin = VectorOf<T>(top);
  std::fill(w.re, w.re + a.step, T{0});
  std::fill(w.im, w.im + a.step, T{0});
  ByFour(first, n, [&]<int kCount>(int64_t c) {
    T minus[kCount];
    for (int k = 0; k < kCount; ++k) minus[k] = -v.im[c + k];
    Combine<kCount>(v.re + c, a[c], a.step, begin, a.step, w.re);
    Combine<kCount>(minus, a[n + c], a.step, begin, a.step, w.re);
    Combine<kCount>(v.re + c, a[n + c], a.step, begin, a.step, w.im);
    Combine<kCount>(v.im + c, a[c], a.step, begin, a.step, w.im);
  });
}

// Subtracts x y^H from rows [top, end) of columns [first, n), given an element
// of x for each row and one of y for each column.
template <typename T>
void SubtractOuter(const Columns<T>& a, Complex<const T*> x,
                   Complex<const T*> y, int64_t first, int64_t top,
                   int64_t end) {
  const int64_t n = a.columns / 2;
  ByFour(first, n, [&]<int kCount>(int64_t c) {
    T re[kCount], im[kCount];
    for (int k = 0; k < kCount; ++k) {
      re[k] = -y.re[c + k];
      im[k] = -y.im[c + k];
    }
    AddTo<kCount>(re, x.re, a[c], a.step, top, end);
    AddTo<kCount>(im, x.im, a[c], a.step, top, end);
    AddTo<kCount>(re, x.im, a[n + c], a.step, top, end);
    AddTo<kCount>(y.im + c, x.re, a[n + c], a.step, top, end);
  });
}

// Multiplies rows [top, end) of columns [first, n) by I - tau v v^H from the
// right; `w` is scratch for a column.
template <typename T>
void ReflectFromRight(const Columns<T>& a, Complex<const T*> v, Complex<T> tau,
                      int64_t first, int64_t top, int64_t end, Complex<T*> w) {
  if (top >= end) return;
  TimesVector(a, v, first, top, w);
  for (int64_t i = top; i < end; ++i) {
    const Complex<T> found = Times({w.re[i], w.im[i]}, tau);
    w.re[i] = found.re;
    w.im[i] = found.im;
  }
  SubtractOuter<T>(a, {w.re, w.im}, v, first, top, end);
}

// Updates by Q^H A Q = A - v w^H - w v^H with
// w = tau A v - |tau|^2 / 2 (v^H A v) v. `v` and `w` are scratch for a column.
template <typename T>
void ComplexTridiagonal(const Columns<T>& a, Complex<T*> v, Complex<T*> w) {
  const int64_t n = a.columns / 2;
  const Complex<const T*> from = {v.re, v.im}, to = {w.re, w.im};
  for (int64_t j = 0; j < n; ++j) {
    T* const re = a[j];
    T* const im = a[n + j];
    ComplexReflector<T> r = {};
    if (j + 1 < n) r = MakeReflector<T>({re, im}, j + 1, n, a.step, v);
    std::fill(re + j + 1, re + n, T{0});
    std::fill(im + j, im + n, T{0});
    for (int64_t c = j + 1; c < n; ++c) a[c][j] = a[n + c][j] = 0;
    if (j + 1 == n) break;
    re[j + 1] = r.beta;
    if (r.IsIdentity()) continue;
    TimesVector(a, from, j + 1, j + 1, w);
    T both, imaginary;
    Products<1>(v.re, w.re, 0, j + 1, n, &both);
    Products<1>(v.im, w.im, 0, j + 1, n, &imaginary);
    both += imaginary;
    both *= (r.tau.re * r.tau.re + r.tau.im * r.tau.im) / 2;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      const Complex<T> found = Times({w.re[i], w.im[i]}, r.tau);
      w.re[i] = found.re - both * v.re[i];
      w.im[i] = found.im - both * v.im[i];
    }
    SubtractOuter<T>(a, to, from, j + 1, j + 1, a.rows);
    SubtractOuter<T>(a, from, to, j + 1, j + 1, n);
  }
}

// `v` and `w` are scratch for a column, `row` for four rows of the planes of
// half as many columns.
template <typename T>
void ComplexBidiagonal(const Columns<T>& a, Complex<T*> v, Complex<T*> w,
                       T* row) {
  const int64_t n = a.columns / 2, step = Columns<T>::Padded(n);
  const int64_t second = n + (a.rows - n) / 2;
  const Complex<T*> across = {row, row + step};
  const Complex<T*> x = {row + 2 * step, row + 3 * step};
  for (int64_t j = 0; j < n; ++j) {
    T* const re = a[j];
    T* const im = a[n + j];
    const auto down = MakeReflector<T>({re, im}, j, n, a.step, v);
    if (!down.IsIdentity()) {
      for (int64_t c = j + 1; c < n; ++c) {
        T sums[4];
        Products<1>(v.re, a[c], 0, j, n, sums);
        Products<1>(v.im, a[n + c], 0, j, n, sums + 1);
        Products<1>(v.re, a[n + c], 0, j, n, sums + 2);
        Products<1>(v.im, a[c], 0, j, n, sums + 3);
        const Complex<T> f = Times<T>({-down.tau.re, down.tau.im},
                                      {sums[0] + sums[1], sums[2] - sums[3]});
        const T minus = -f.im;
        AddTo<1>(&f.re, v.re, a[c], 0, j, n);
        AddTo<1>(&minus, v.im, a[c], 0, j, n);
        AddTo<1>(&f.re, v.im, a[n + c], 0, j, n);
        AddTo<1>(&f.im, v.re, a[n + c], 0, j, n);
      }
      ReflectFromRight<T>(a, {v.re, v.im}, down.tau, j, second, a.rows, w);
    }
    std::fill(re + j, re + n, T{0});
    std::fill(im + j, im + n, T{0});
    re[j] = down.beta;
    if (j + 1 == n) break;
    for (int64_t c = 0; c < n; ++c) {
      x.re[c] = a[c][j];
      x.im[c] = -a[n + c][j];
    }
    const auto right = MakeReflector<T>({x.re, x.im}, j + 1, n, step, across);
    for (int64_t c = j + 1; c < n; ++c) a[c][j] = a[n + c][j] = 0;
    a[j + 1][j] = right.beta;
    if (right.IsIdentity()) continue;
    ReflectFromRight<T>(a, {across.re, across.im}, right.tau, j + 1, j + 1,
                        second, w);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_FACTOR_COMPLEX_H_
