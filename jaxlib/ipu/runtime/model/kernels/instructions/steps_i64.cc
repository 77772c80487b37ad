#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_integer.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindI64(program::Opcode op) { return FindInteger<int64_t>(op); }
StepFn FindU64(program::Opcode op) { return FindInteger<uint64_t>(op); }
MathCode FindMathI64(program::Opcode op) {
  return FindIntegerMath<int64_t>(op);
}
MathCode FindMathU64(program::Opcode op) {
  return FindIntegerMath<uint64_t>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS
