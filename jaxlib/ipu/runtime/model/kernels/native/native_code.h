// Machine code for steps of a register program: one loop over a block whose
// values stay in registers, where a list of steps would write and read each.
//
// Only what one or a few machine instructions do is compiled, and only for
// processors with AVX-512.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The code takes the block as steps do.
using NativeFn = void (*)(const Frame& frame);

// Whether an instruction's step can be compiled at all.
bool IsNative(const program::Instruction& instruction);

// Values in an order in which they can be made. `count`: the elements of every
// block, 0 if blocks differ; as many as a short vector has need no loop, and
// the code then ignores Frame::count. Empty if the values do not fit into the
// registers.
std::vector<uint8_t> CompileNative(std::span<const NativeValue> values,
                                   int64_t count);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_
