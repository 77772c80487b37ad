// Factories of kernels that belong to no codelet. factories.cc combines them
// with those in codelets.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_

#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model::IPU_SIMD_NS {

KernelOr MakeCopy(std::vector<CopyPlan> plans);
std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts);
CombineFn FindCombine(DType dtype, program::ReduceKind kind);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_
