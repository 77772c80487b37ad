#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_integer.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindI32(program::Opcode op) { return FindInteger<int32_t>(op); }
StepFn FindU32(program::Opcode op) { return FindInteger<uint32_t>(op); }
MathCode FindMathI32(program::Opcode op) {
  return FindIntegerMath<int32_t>(op);
}
MathCode FindMathU32(program::Opcode op) {
  return FindIntegerMath<uint32_t>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS
