// The integer instructions for one width; used by steps_i32.cc and
// steps_i64.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_INTEGER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_INTEGER_H_

#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic_integer.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps_common.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"

namespace ipu::model::IPU_SIMD_NS {

// Instructions that are independent of signedness. U is the unsigned type.
template <typename U>
StepFn FindUnsigned(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kAnd:
      return RunStep<And, U, U, U>;
    case Opcode::kOr:
      return RunStep<Or, U, U, U>;
    case Opcode::kXor:
      return RunStep<Xor, U, U, U>;
    case Opcode::kShl:
      return RunStep<ShiftLeft, U, U, U>;
    case Opcode::kShrLogical:
      return RunStep<ShiftRightLogical, U, U, U>;
    case Opcode::kShrArithmetic:
      return RunStep<ShiftRightArithmetic, U, U, U>;
    case Opcode::kNot:
      return RunStep<Not, U, U>;
    case Opcode::kNegate:
      return RunStep<Negate, U, U>;
    case Opcode::kPopcnt:
      return RunStep<PopCount, U, U>;
    case Opcode::kClz:
      return RunStep<CountLeadingZeros, U, U>;
    default:
      break;
  }
  if (op == program::kRotateLeft) return RunStep<RotateLeft, U, U>;
  if (op == program::kRotateXor) return RunStep<RotateXor, U, U, U>;
  return FindRing<U>(op);
}

// Divisions and powers.
template <typename T>
MathCode FindIntegerMath(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kDiv:
      return CodeOf<DivInteger, T, T, T>();
    case Opcode::kRem:
      return CodeOf<RemInteger, T, T, T>();
    case Opcode::kPow:
      return CodeOf<PowInteger, T, T, T>();
    default:
      return {};
  }
}

// All integer instructions of one type.
template <typename T>
StepFn FindInteger(program::Opcode op) {
  using program::Opcode;
  using U = Bits<T>;
  switch (op) {
    case Opcode::kAbs:
      return std::is_signed_v<T> ? RunStep<AbsSigned, U, U>
                                 : RunStep<Identity, U, U>;
    case Opcode::kSign:
      return RunStep<SignInteger, T, T>;
    default:
      break;
  }
  if (const StepFn math = FindIntegerMath<T>(op).step) return math;
  if (op == program::kDivideBy) return RunStep<DivideBy, T, T, T>;
  if (op == program::kRemainderBy) return RunStep<RemainderBy, T, T, T, T>;
  const StepFn ordering = FindOrdering<T>(op);
  return ordering != nullptr ? ordering : FindUnsigned<U>(op);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_INTEGER_H_
