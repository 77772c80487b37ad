#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_float.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindF32(program::Opcode op) {
  const StepFn math = FindMathF32(op);
  return math != nullptr ? math : FindFloat<float>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS
