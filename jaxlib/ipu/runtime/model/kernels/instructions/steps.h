// Tables from opcodes to step functions, one per register type, in separate
// files to limit compile time.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"

namespace ipu::model::IPU_SIMD_NS {

StepFn FindF32(program::Opcode op);
StepFn FindF64(program::Opcode op);
StepFn FindI32(program::Opcode op);
StepFn FindU32(program::Opcode op);
StepFn FindI64(program::Opcode op);
StepFn FindU64(program::Opcode op);

// CONVERT, WRAP, ROUND, BITS and FROM_BITS.
StepFn FindConversion(const program::Instruction& instruction);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEPS_H_
