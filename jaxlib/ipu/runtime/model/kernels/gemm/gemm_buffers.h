// Per-thread scratch memory of matrix products.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BUFFERS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BUFFERS_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/scratch.h"

namespace ipu::model::IPU_SIMD_NS {

namespace gemm {

struct Buffers {
  Scratch rows, columns, vector, result, partial, box;
};

inline Buffers& ThreadBuffers() {
  static thread_local Buffers buffers;
  return buffers;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace gemm

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BUFFERS_H_
