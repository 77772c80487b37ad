// The kernel that runs an evaluator over its whole iteration space.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_MAP_KERNEL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_MAP_KERNEL_H_

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/evaluator.h"

namespace ipu::model::IPU_SIMD_NS {

// `evaluation` as MakeEvaluator takes it, but its space may be empty. Runs in
// the order of the first result's elements in memory.
KernelOr MakeMapKernel(Evaluation evaluation);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_MAP_KERNEL_H_
