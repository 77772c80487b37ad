// The instructions that floats and integers have in common.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_COMMON_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_COMMON_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/fused.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"

namespace ipu::model::IPU_SIMD_NS {

// Instructions that compare by magnitude; T has the right signedness.
template <typename T>
StepFn FindOrdering(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kMax:
      return RunStep<Max, T, T, T>;
    case Opcode::kMin:
      return RunStep<Min, T, T, T>;
    case Opcode::kClamp:
      return RunStep<Clamp, T, T, T, T>;
    case Opcode::kLt:
      return RunStep<Less, uint32_t, T, T>;
    case Opcode::kLe:
      return RunStep<LessEqual, uint32_t, T, T>;
    case Opcode::kGt:
      return RunStep<Greater, uint32_t, T, T>;
    case Opcode::kGe:
      return RunStep<GreaterEqual, uint32_t, T, T>;
    default:
      return nullptr;
  }
}

// Instructions that are independent of signedness: T is a float or an unsigned
// integer.
template <typename T>
StepFn FindRing(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kAdd:
      return RunStep<Add, T, T, T>;
    case Opcode::kSub:
      return RunStep<Sub, T, T, T>;
    case Opcode::kMul:
      return RunStep<Mul, T, T, T>;
    case Opcode::kEq:
      return RunStep<Equal, uint32_t, T, T>;
    case Opcode::kNe:
      return RunStep<NotEqual, uint32_t, T, T>;
    case Opcode::kSelect:
      return RunStep<Select, T, uint32_t, T, T>;
    default:
      return FindFused<T>(op);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_COMMON_H_
