// The instructions that can be compiled to machine code: those that are few
// machine instructions, without a branch.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

bool IsNative(const program::Instruction& instruction);

// Whether the code of such an instruction reads numbers behind the code.
inline bool ReadsNumbers(const program::Instruction& instruction) {
  return instruction.op == program::Opcode::kExp ||
         instruction.op == program::Opcode::kLogistic;
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_
