// The instructions that can be compiled to machine code: those that are one or
// a few machine instructions.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

bool IsNative(const program::Instruction& instruction);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_IS_NATIVE_H_
