// The float instructions for one width; used by steps_f32.cc and steps_f64.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_FLOAT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_FLOAT_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic_float.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_common.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
StepFn FindFloat(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kNegate:
      return RunStep<NegateFloat, T, T>;
    case Opcode::kAbs:
      return RunStep<AbsFloat, T, T>;
    case Opcode::kSign:
      return RunStep<SignFloat, T, T>;
    case Opcode::kIsFinite:
      return RunStep<IsFinite, uint32_t, T>;
    case Opcode::kDiv:
      return RunStep<Div, T, T, T>;
    default:
      break;
  }
  const StepFn ordering = FindOrdering<T>(op);
  return ordering != nullptr ? ordering : FindRing<T>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_FLOAT_H_
