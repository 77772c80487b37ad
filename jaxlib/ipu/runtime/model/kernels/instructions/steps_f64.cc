#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_float.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindF64(program::Opcode op) {
  const StepFn math = FindMathF64(op);
  return math != nullptr ? math : FindFloat<double>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS
