// Compiles a run of steps of a register program to machine code: one loop over
// a block that keeps all values in registers, where the steps would store and
// reload each of them.
//
// Takes values in an order that respects their data flow and returns
// position-independent code, whose results equal those of the steps bit by bit.
// Supports only the instructions in is_native.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

namespace ipu::model::IPU_SIMD_NS {

// Compiles `values` to a NativeFn, each of which must come after its operands
// and be one of the instructions in is_native.h. `count` is the number of
// elements in every block, or 0 if it varies. If `count` fits into one vector
// and is a power of two (with AVX2: not 2), there is no loop, and the code
// ignores Frame::count. Vectors without lanes that need the values of one of
// the `sides` do not compute these.
// Returns no code if the values do not fit into the registers.
std::vector<uint8_t> CompileNative(std::span<const NativeValue> values,
                                   std::span<const ValueSide> sides,
                                   int64_t count);

// The function whose code was placed.
inline NativeFn CodeOf(const CodeHandle& code) {
  return reinterpret_cast<NativeFn>(const_cast<void*>(code.get()));
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_
