// Reductions by a user-defined function.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// The kernel of a `Reduce` of kind GENERAL. The function is assumed to be
// associative, as StableHLO's reduce requires; elements are combined in order.
KernelOr MakeGeneralReduce(const ComputeSet& set,
                           const program::Reduce& fields);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_GENERAL_REDUCE_H_
