// The spacing of terms and coefficients; included only by gemm_fourier*.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_AXIS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_AXIS_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// The distance between neighbouring indices in [first, first + count); 0 if it
// varies.
inline int64_t StepOf(const Axis& axis, int64_t first, int64_t count) {
  const int64_t step = axis.At(first + 1) - axis.At(first);
  for (int64_t i = 2; i < count; ++i) {
    if (axis.At(first + i) - axis.At(first) != i * step) return 0;
  }
  return step;
}

// The same in each of the planes of `count` indices.
inline int64_t StepOfPlanes(const Axis& axis, int64_t planes, int64_t count) {
  const int64_t step = StepOf(axis, 0, count);
  if (planes == 2 && StepOf(axis, count, count) != step) return 0;
  return step;
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_FOURIER_AXIS_H_
