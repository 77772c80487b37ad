// What is known of a product with the matrix of a discrete Fourier transform;
// `Fourier` in jaxlib/ipu/program/schema.py.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_

#include <cstdint>

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

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_MATRIX_H_
