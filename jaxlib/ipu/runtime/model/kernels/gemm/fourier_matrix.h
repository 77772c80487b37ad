// Recognises the matrices of discrete Fourier transforms; included only by
// gemm_fourier.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

namespace ipu::model::IPU_SIMD_NS::gemm {

// The matrix of a complex transform, written as a real one. Its rows are the
// real parts of `terms` numbers, then their imaginary parts; its columns are
// the real parts of the first `kept` coefficients, then their imaginary parts.
// Rows or columns of imaginary parts may be missing: then there is only one
// plane.
struct FourierMatrix {
  int64_t length;      // of the transform; terms from `terms` on are 0
  int64_t planes;      // of rows: 1 if all terms are real
  int64_t terms;       // rows in a plane
  int64_t out_planes;  // of columns: 1 if only real parts are computed
  int64_t kept;        // columns in a plane
  int sign;            // of the exponent
  double scale;        // factor of all coefficients
};

// exp(2 pi i k / n) for k below n.
struct UnitRoots {
  explicit UnitRoots(int64_t n) : cosine(n), sine(n) {
    for (int64_t k = 0; k < n; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) /
                           static_cast<double>(n);
      cosine[k] = std::cos(angle);
      sine[k] = std::sin(angle);
    }
  }

  std::vector<double> cosine, sine;
};

// Whether all elements of a matrix are those of `f`, up to the rounding of type
// T. `at(i, j)` is the element of row i and column j.
template <typename T, typename At>
bool IsFourier(const FourierMatrix& f, const At& at) {
  const UnitRoots roots(f.length);
  const double bound = 4 * std::numeric_limits<T>::epsilon() * f.scale;
  const auto is = [&](int64_t i, int64_t j, double value) {
    return std::abs(at(i, j) - value * f.scale) <= bound;
  };
  for (int64_t j = 0; j < f.terms; ++j) {
    for (int64_t k = 0; k < f.kept; ++k) {
      const double c = roots.cosine[j * k % f.length];
      const double s = f.sign * roots.sine[j * k % f.length];
      if (!is(j, k, c)) return false;
      if (f.out_planes == 2 && !is(j, f.kept + k, s)) return false;
      if (f.planes == 1) continue;
      if (!is(f.terms + j, k, -s)) return false;
      if (f.out_planes == 2 && !is(f.terms + j, f.kept + k, c)) return false;
    }
  }
  return true;
}

// The transform of length at most `longest` of which a matrix of `rows` by
// `columns` elements is the matrix; nullopt if there is none.
template <typename T, typename At>
std::optional<FourierMatrix> FindFourierMatrix(int64_t rows, int64_t columns,
                                               int64_t longest, const At& at) {
  for (const auto& [planes, out_planes] : {std::pair{2, 2}, {1, 2}, {2, 1}}) {
    FourierMatrix f{.length = 0,
                    .planes = planes,
                    .terms = rows / planes,
                    .out_planes = out_planes,
                    .kept = columns / out_planes,
                    .sign = 1,
                    .scale = static_cast<double>(at(0, 0))};
    if (rows % planes != 0 || columns % out_planes != 0 || f.terms < 2 ||
        f.kept < 2 || !(f.scale > 0)) {
      continue;
    }
    // Term 1 of coefficient 1 has the first root of unity as its factor, whose
    // angle is 2 pi / length or -2 pi / length.
    const double c = at(1, 1);
    const double s = out_planes == 2 ? at(1, f.kept + 1) : -at(f.terms + 1, 1);
    const double turn = std::atan2(s, c) / (2 * std::numbers::pi);
    if (!(std::abs(turn) * longest >= 0.5)) continue;
    f.length = std::llround(1 / std::abs(turn));
    f.sign = s < 0 ? -1 : 1;
    if (f.length >= f.terms && f.length >= f.kept && f.length <= longest &&
        IsFourier<T>(f, at)) {
      return f;
    }
  }
  return std::nullopt;
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_
