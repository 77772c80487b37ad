// The kernel factory table of one instruction set; see factories.h.

#include "jaxlib/ipu/runtime/model/factories.h"

#include <variant>

#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

KernelOr MakeKernelOf(const ComputeSet& set, const program::Fields& fields) {
  return std::visit([&](const auto& record) { return MakeKernel(set, record); },
                    fields.value);
}

}  // namespace

const Factories& Table() {
  static constexpr Factories kTable = {
      .kernel = MakeKernelOf,
      .copy = MakeCopy,
      .scalar_loop = MakeScalarLoop,
      .combine = FindCombine,
  };
  return kTable;
}

}  // namespace ipu::model::IPU_SIMD_NS
