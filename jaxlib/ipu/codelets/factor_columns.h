// Column-major matrices in the scratch memory of factorisations, and
// Householder reflectors.

#ifndef JAXLIB_IPU_CODELETS_FACTOR_COLUMNS_H_
#define JAXLIB_IPU_CODELETS_FACTOR_COLUMNS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// A column-major matrix. Columns are padded to whole vectors; the padding is
// zero and stays zero.
template <typename T>
struct Columns {
  T* data;
  int64_t rows, columns, step;

  T* operator[](int64_t column) const { return data + column * step; }

  // The padded length of a column.
  static int64_t Padded(int64_t rows) {
    return (rows + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  }
};

// The first row of the vector that holds row i.
template <typename T>
inline int64_t VectorOf(int64_t i) {
  return i / kLanes<T> * kLanes<T>;
}

// sums[k] = the dot product of v and x_k over rows [first, end), for kCount
// columns x_k. Rows before `first` are ignored. In rows of the last vector
// after `end`, one of v and x_k must be zero and the other finite.
template <int kCount, typename T>
inline void Products(const T* v, const T* x, int64_t step, int64_t first,
                     int64_t end, T* sums) {
  const int64_t begin = VectorOf<T>(first);
  const Mask<T> above(first - begin);
  Vector<T> total[kCount];
  // Mask rows before `first`: they may be NaN, and zero times NaN is not zero.
  const auto head = Load<Vector<T>>(v + begin);
  for (int k = 0; k < kCount; ++k) {
    total[k] =
        above.Select(Vector<T>{}, head * Load<Vector<T>>(x + k * step + begin));
  }
  for (int64_t i = begin + kLanes<T>; i < end; i += kLanes<T>) {
    const auto a = Load<Vector<T>>(v + i);
    for (int k = 0; k < kCount; ++k) {
      total[k] = MultiplyAdd<T>(a, Load<Vector<T>>(x + k * step + i), total[k]);
    }
  }
  for (int k = 0; k < kCount; ++k) sums[k] = AddLanes<T>(total[k]);
}

// A column v and the factors by which kCount others take it.
template <int kCount, typename T>
struct Term {
  const T* v;
  T factors[kCount];
};

// x_k += the sum of factors[k] * v of all terms over rows [first, end), in
// their order. Other rows are unchanged, even if a factor is NaN.
template <int kTerms, int kCount, typename T>
inline void AddTerms(const std::array<Term<kCount, T>, kTerms>& terms, T* x,
                     int64_t step, int64_t first, int64_t end) {
  Vector<T> f[kTerms][kCount];
  for (int t = 0; t < kTerms; ++t) {
    for (int k = 0; k < kCount; ++k) f[t][k] = Broadcast(terms[t].factors[k]);
  }
  const auto add = [&](int64_t i, const auto& choose) {
    Vector<T> v[kTerms];
    for (int t = 0; t < kTerms; ++t) v[t] = Load<Vector<T>>(terms[t].v + i);
    for (int k = 0; k < kCount; ++k) {
      T* const to = x + k * step + i;
      const auto old = Load<Vector<T>>(to);
      auto sum = old;
      for (int t = 0; t < kTerms; ++t) {
        sum = MultiplyAdd<T>(f[t][k], v[t], sum);
      }
      Store(to, choose(sum, old));
    }
  };
  int64_t i = VectorOf<T>(first);
  if (first > i) {
    const Mask<T> above(first - i),
        inside(std::min<int64_t>(end - i, kLanes<T>));
    add(i, [&](Vector<T> sum, Vector<T> old) {
      return above.Select(old, inside.Select(sum, old));
    });
    i += kLanes<T>;
  }
  for (; i + kLanes<T> <= end; i += kLanes<T>) {
    add(i, [](Vector<T> sum, Vector<T>) { return sum; });
  }
  if (i < end) {
    const Mask<T> inside(end - i);
    add(i,
        [&](Vector<T> sum, Vector<T> old) { return inside.Select(sum, old); });
  }
}

// AddTerms of one term.
template <int kCount, typename T>
inline void AddTo(const T* factors, const T* v, T* x, int64_t step,
                  int64_t first, int64_t end) {
  Term<kCount, T> term = {v, {}};
  std::copy(factors, factors + kCount, term.factors);
  AddTerms<1, kCount, T>({term}, x, step, first, end);
}

// w += sum of factors[k] * x_k over rows [begin, end), which must be multiples
// of a vector.
template <int kCount, typename T>
inline void Combine(const T* factors, const T* x, int64_t step, int64_t begin,
                    int64_t end, T* w) {
  Vector<T> f[kCount];
  for (int k = 0; k < kCount; ++k) f[k] = Broadcast(factors[k]);
  for (int64_t i = begin; i < end; i += kLanes<T>) {
    auto total = Load<Vector<T>>(w + i);
    for (int k = 0; k < kCount; ++k) {
      total = MultiplyAdd<T>(f[k], Load<Vector<T>>(x + k * step + i), total);
    }
    Store(w + i, total);
  }
}

// Calls body.template operator()<count>(column) for all columns in [begin,
// end): four at a time, then one at a time.
template <typename Body>
inline void ByFour(int64_t begin, int64_t end, const Body& body) {
  for (; begin + 4 <= end; begin += 4) body.template operator()<4>(begin);
  for (; begin < end; ++begin) body.template operator()<1>(begin);
}

// The reflector I - tau v v^T that zeros a column below row `head`.
template <typename T>
struct Reflector {
  T tau;
  T beta;  // the new value in row `head`
};

// Writes v over rows [0, step). v is zero above `head` and one in row `head`.
template <typename T>
Reflector<T> MakeReflector(const T* x, int64_t head, int64_t rows, int64_t step,
                           T* v) {
  std::fill(v, v + head + 1, T{0});
  std::copy(x + head + 1, x + rows, v + head + 1);
  std::fill(v + rows, v + step, T{0});
  using Limits = std::numeric_limits<T>;
  T square, alpha = x[head], unit = 1;
  Products<1>(v, v, 0, head, step, &square);
  if (alpha * alpha + square < Limits::min() / Limits::epsilon()) {
    // Scale first: squares of numbers this small lose most or all digits.
    T largest = 0;
    for (int64_t i = head; i < rows; ++i) {
      largest = std::max(largest, std::abs(x[i]));
    }
    if (largest > 0) unit = largest;
    for (int64_t i = head + 1; i < rows; ++i) v[i] /= unit;
    alpha /= unit;
    Products<1>(v, v, 0, head, step, &square);
  }
  v[head] = 1;
  if (square == 0) {
    std::fill(v + head + 1, v + rows, T{0});
    return {0, x[head]};
  }
  const T norm = std::sqrt(alpha * alpha + square);
  const T beta = alpha >= 0 ? -norm : norm;
  const T shift = alpha - beta;
  for (int64_t i = head + 1; i < rows; ++i) v[i] /= shift;
  return {(beta - alpha) / beta, beta * unit};
}

// Applies I - tau v v^T to columns [begin, end) from the left.
template <typename T>
void Reflect(const Columns<T>& a, const T* v, T tau, int64_t head,
             int64_t begin, int64_t end) {
  if (tau == 0) return;
  ByFour(begin, end, [&]<int kCount>(int64_t c) {
    T sums[kCount];
    Products<kCount>(v, a[c], a.step, head, a.step, sums);
    for (T& sum : sums) sum *= -tau;
    AddTo<kCount>(sums, v, a[c], a.step, head, a.rows);
  });
}

// Stores a reflector in the column that it has zeroed.
template <typename T>
void Pack(T* x, const Reflector<T>& r, const T* v, int64_t head, int64_t rows) {
  x[head] = r.beta;
  std::copy(v + head + 1, v + rows, x + head + 1);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_FACTOR_COLUMNS_H_
