// Super-instructions: pairs of arithmetic operations, see register_code.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_FUSED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_FUSED_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"

namespace ipu::model::IPU_SIMD_NS {

// Two operations in one pass, each rounded separately.
struct MulAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b + c;
  }
};
struct MulSub {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b - c;
  }
};
struct NegMulAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return c - a * b;
  }
};
struct MulMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a * b * c;
  }
};
struct AddAdd {
  template <typename V>
  static V Do(V a, V b, V c) {
    return a + b + c;
  }
};
struct AddMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return (a + b) * c;
  }
};
struct SubMul {
  template <typename V>
  static V Do(V a, V b, V c) {
    return (a - b) * c;
  }
};

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

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_FUSED_H_
