// The factories of one instruction set's kernels, which factories.cc gathers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_

#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model::IPU_SIMD_NS {

KernelOr MakeMap(const ComputeSet& set, const program::Map& fields);
KernelOr MakeReduce(const ComputeSet& set, const program::Reduce& fields);
KernelOr MakeDot(const ComputeSet& set, const program::Dot& fields);
KernelOr MakeScan(const ComputeSet& set, const program::Scan& fields);
KernelOr MakeGather(const ComputeSet& set, const program::Gather& fields);
KernelOr MakeScatter(const ComputeSet& set, const program::Scatter& fields);
KernelOr MakeDynamicSlice(const ComputeSet& set,
                          const program::DynamicSlice& fields);
KernelOr MakeDynamicUpdate(const ComputeSet& set,
                           const program::DynamicUpdate& fields);
KernelOr MakeCopy(std::vector<CopyPlan> plans);
std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FACTORIES_INTERNAL_H_
