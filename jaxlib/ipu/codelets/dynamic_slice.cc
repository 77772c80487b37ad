// The kernel of DynamicSlice: one copy from where the indices say.

#include "jaxlib/ipu/codelets/dynamic_window.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"

namespace ipu::model::IPU_SIMD_NS {

KernelOr MakeKernel(const ComputeSet& set,
                    const program::DynamicSlice& fields) {
  if (set.operands.empty() || set.results.size() != 1) {
    return InvalidArgument("dynamic slice: takes an operand and start indices");
  }
  return MakeWindowCopy("dynamic slice", Direction::kOutOfWindow, set,
                        set.operands[0].view, set.results[0],
                        fields.dynamic_dims);
}

}  // namespace ipu::model::IPU_SIMD_NS
