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

// w += columns [c, c + kCount) times the elements of v that belong to them, in
// rows from `begin`, which must be a multiple of a vector.
template <int kCount, typename T>
void CombineComplex(const Columns<T>& a, Complex<const T*> v, int64_t c,
                    int64_t begin, Complex<T*> w) {
  const int64_t n = a.columns / 2;
  Vector<T> re[kCount], im[kCount];
  for (int k = 0; k < kCount; ++k) {
    re[k] = Broadcast(v.re[c + k]);
    im[k] = Broadcast(v.im[c + k]);
  }
  for (int64_t i = begin; i < a.step; i += kLanes<T>) {
    auto real = Load<Vector<T>>(w.re + i),
         imaginary = Load<Vector<T>>(w.im + i);
    for (int k = 0; k < kCount; ++k) {
      const auto x = Load<Vector<T>>(a[c + k] + i);
      const auto y = Load<Vector<T>>(a[n + c + k] + i);
      real = MultiplyAdd<T>(re[k], x, real);
      real = MultiplyAdd<T>(-im[k], y, real);
      imaginary = MultiplyAdd<T>(re[k], y, imaginary);
      imaginary = MultiplyAdd<T>(im[k], x, imaginary);
    }
    Store(w.re + i, real);
    Store(w.im + i, imaginary);
  }
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
    CombineComplex<kCount>(a, v, c, begin, w);
  });
}

// An element of x for each row and one of y for each column.
template <typename T>
struct Outer {
  Complex<const T*> x, y;
};

// Subtracts the sum of x y^H of all products from rows [top, end) of columns
// [c, c + kCount).
template <int kCount, int kProducts, typename T>
void SubtractOuter(const Columns<T>& a,
                   const std::array<Outer<T>, kProducts>& products, int64_t c,
                   int64_t top, int64_t end) {
  // More factors than these would not stay in registers.
  constexpr int kAtOnce = std::min(kCount, 4 / kProducts);
  using Terms = std::array<Term<kAtOnce, T>, 2 * kProducts>;
  const int64_t n = a.columns / 2;
  for (int64_t last = c + kCount; c < last; c += kAtOnce) {
    Terms re, im;
    for (int t = 0; t < kProducts; ++t) {
      const auto& [x, y] = products[t];
      re[2 * t].v = im[2 * t + 1].v = x.re;
      re[2 * t + 1].v = im[2 * t].v = x.im;
      for (int k = 0; k < kAtOnce; ++k) {
        re[2 * t].factors[k] = im[2 * t].factors[k] = -y.re[c + k];
        re[2 * t + 1].factors[k] = -y.im[c + k];
        im[2 * t + 1].factors[k] = y.im[c + k];
      }
    }
    AddTerms<2 * kProducts, kAtOnce, T>(re, a[c], a.step, top, end);
    AddTerms<2 * kProducts, kAtOnce, T>(im, a[n + c], a.step, top, end);
  }
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
  ByFour(first, a.columns / 2, [&]<int kCount>(int64_t c) {
    SubtractOuter<kCount, 1, T>(a, {{{{w.re, w.im}, v}}}, c, top, end);
  });
}

// Updates by Q^H A Q = A - v w^H - w v^H with
// w = tau A v - |tau|^2 / 2 (v^H A v) v, as Tridiagonal (factor_reflectors.h)
// does. Further rows are multiplied by Q: they lack v w^H. `scratch` is for
// eight columns.
template <typename T>
void ComplexTridiagonal(const Columns<T>& a, T* scratch) {
  const int64_t n = a.columns / 2;
  const auto take = [&]() -> Complex<T*> {
    T* const re = scratch;
    scratch += 2 * a.step;
    return {re, re + a.step};
  };
  Complex<T*> v = take(), w = take(), old_v = take(), old_w = take();
  int64_t top = n;  // the rows of the update that columns still need
  const auto update = [&]<int kCount>(int64_t c) {
    if (top == n) return;
    const Outer<T> by_v = {{old_w.re, old_w.im}, {old_v.re, old_v.im}};
    const Outer<T> by_w = {by_v.y, by_v.x};
    SubtractOuter<kCount, 2, T>(a, {by_v, by_w}, c, top, n);
    if (n < a.rows) SubtractOuter<kCount, 1, T>(a, {by_v}, c, n, a.rows);
  };
  for (int64_t j = 0; j < n; ++j) {
    T* const re = a[j];
    T* const im = a[n + j];
    update.template operator()<1>(j);
    ComplexReflector<T> r = {};
    if (j + 1 < n) r = MakeReflector<T>({re, im}, j + 1, n, a.step, v);
    std::fill(re + j + 1, re + n, T{0});
    std::fill(im + j, im + n, T{0});
    if (j + 1 < n) re[j + 1] = r.beta;
    const int64_t begin = VectorOf<T>(j + 1);
    std::fill(w.re, w.re + a.step, T{0});
    std::fill(w.im, w.im + a.step, T{0});
    ByFour(j + 1, n, [&]<int kCount>(int64_t c) {
      update.template operator()<kCount>(c);
      for (int k = 0; k < kCount; ++k) a[c + k][j] = a[n + c + k][j] = 0;
      if (r.IsIdentity()) return;
      CombineComplex<kCount, T>(a, {v.re, v.im}, c, begin, w);
    });
    top = n;
    if (r.IsIdentity()) continue;
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
    top = j + 1;
    std::swap(v, old_v);
    std::swap(w, old_w);
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
        using Terms = std::array<Term<1, T>, 2>;
        const Terms of_re = {{{v.re, {f.re}}, {v.im, {-f.im}}}};
        const Terms of_im = {{{v.im, {f.re}}, {v.re, {f.im}}}};
        AddTerms<2, 1, T>(of_re, a[c], 0, j, n);
        AddTerms<2, 1, T>(of_im, a[n + c], 0, j, n);
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
