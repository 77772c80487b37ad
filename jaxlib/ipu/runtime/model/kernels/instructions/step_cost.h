// The time of an instruction on one core, used to decide whether a loop is
// worth more than one thread. Measured on a machine of 2023; accurate to a
// factor of two.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_COST_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_COST_H_

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// Nanoseconds per element.
inline double StepCost(const program::Instruction& i) {
  using program::Opcode;
  const bool wide = program::RegisterBytes(i.type) == 8;
  const bool is_float = program::IsFloat(i.type);
  switch (i.op) {
    case Opcode::kDiv:
      return is_float ? (wide ? 0.3 : 0.15) : (wide ? 4.0 : 0.7);
    case Opcode::kRem:
      return is_float ? (wide ? 6.0 : 0.7) : (wide ? 4.0 : 0.8);
    case Opcode::kPow:
      return is_float ? (wide ? 11.0 : 3.0) : 10.0;
    case Opcode::kAtan2:
      return wide ? 12.0 : 1.2;
    case Opcode::kSqrt:
    case Opcode::kRsqrt:
      return wide ? 0.6 : 0.25;
    case Opcode::kExp:
    case Opcode::kExpm1:
    case Opcode::kLog:
    case Opcode::kLog1p:
    case Opcode::kTanh:
    case Opcode::kLogistic:
      return wide ? 1.0 : 0.4;
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kTan:
      return wide ? 1.3 : 0.8;
    case Opcode::kCbrt:
      return wide ? 2.0 : 0.8;
    case Opcode::kPopcnt:
    case Opcode::kClz:
      return 0.4;
    default:
      if (i.op == program::kDivideBy || i.op == program::kRemainderBy) {
        return wide ? 0.7 : 0.2;
      }
      return wide ? 0.1 : 0.05;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_COST_H_
