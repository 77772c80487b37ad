// The kernel of Map: a register program over the iteration space.

#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/map_kernel.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

KernelOr MakeKernel(const ComputeSet& compute_set, const program::Map& fields) {
  if (fields.outputs.size() != compute_set.results.size() ||
      fields.outputs.empty()) {
    return DataLoss("malformed Map: " + std::to_string(fields.outputs.size()) +
                    " outputs for " +
                    std::to_string(compute_set.results.size()) + " results");
  }
  auto code = program::DecodeRegisterCode(fields.code, fields.outputs,
                                          compute_set.operands.size(),
                                          compute_set.shape.size());
  if (!code.ok()) return code.status();

  return MakeMapKernel({std::move(*code), compute_set.shape,
                        compute_set.operands, compute_set.results});
}

}  // namespace ipu::model::IPU_SIMD_NS
