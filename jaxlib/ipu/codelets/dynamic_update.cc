// The kernel of DynamicUpdate: one copy to where the indices say.

#include "jaxlib/ipu/codelets/dynamic_window.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"

namespace ipu::model::IPU_SIMD_NS {

KernelOr MakeKernel(const ComputeSet& set,
                    const program::DynamicUpdate& fields) {
  if (set.operands.empty() || set.results.size() != 1) {
    return InvalidArgument("dynamic update: takes an update and start indices");
  }
  return MakeWindowCopy("dynamic update", Direction::kIntoWindow, set,
                        set.results[0].view, set.operands[0],
                        fields.dynamic_dims);
}

}  // namespace ipu::model::IPU_SIMD_NS
