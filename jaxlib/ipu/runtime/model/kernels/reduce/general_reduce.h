// Reductions by a user's function.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// `Reduce` of kind GENERAL. The function is taken to be associative, as
// StableHLO's reduce asks, and elements are combined in their order.
KernelOr MakeGeneralReduce(const ComputeSet& set,
                           const program::Reduce& fields);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_
