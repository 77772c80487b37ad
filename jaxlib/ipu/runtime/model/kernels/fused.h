// The super-instructions of two arithmetic operations (register_code.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FUSED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FUSED_H_

#include "jaxlib/ipu/runtime/model/kernels/arithmetic.h"
#include "jaxlib/ipu/runtime/model/kernels/step.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
StepFn FindFused(program::Opcode op) {
  if (op == program::kMulAdd) return RunStep<MulAdd, T, T, T, T>;
  if (op == program::kMulSub) return RunStep<MulSub, T, T, T, T>;
  if (op == program::kNegMulAdd) return RunStep<NegMulAdd, T, T, T, T>;
  if (op == program::kMulMul) return RunStep<MulMul, T, T, T, T>;
  if (op == program::kAddAdd) return RunStep<AddAdd, T, T, T, T>;
  if (op == program::kAddMul) return RunStep<AddMul, T, T, T, T>;
  if (op == program::kSubMul) return RunStep<SubMul, T, T, T, T>;
  return nullptr;
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_FUSED_H_
