#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_float.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindF32(program::Opcode op) {
  const StepFn math = FindMathF32(op).step;
  return math != nullptr ? math : FindFloat<float>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS
