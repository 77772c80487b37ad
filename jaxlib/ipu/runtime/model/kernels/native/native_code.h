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
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The code takes the block as steps do.
using NativeFn = void (*)(const Frame& frame);

struct NativeValue {
  enum Kind : uint8_t {
    kStill,     // one vector in a slot, the same for all elements
    kBlock,     // a block in a slot
    kElements,  // a dense operand in memory, converted on the way
    kComputed,
  };
  Kind kind;
  uint32_t width;                      // bytes in a register
  uint16_t slot = 0;                   // kStill, kBlock
  const Source* source = nullptr;      // kElements
  program::Instruction instruction{};  // kComputed
  int operands[3] = {-1, -1, -1};      // kComputed: indices of values
  int last_use = -1;                   // the last value that is made of it
  int stored = -1;                     // the slot that it is stored to
  uint8_t stored_dtype = 0;            // ... as elements; 0: as register values
};

// Whether an instruction's step, or a conversion of elements to or from
// registers, can be compiled at all.
bool IsNative(const program::Instruction& instruction);
bool IsNativeElement(uint8_t dtype);

// Values in an order in which they can be made. Empty if they do not fit into
// the registers.
std::vector<uint8_t> CompileNative(std::span<const NativeValue> values);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_CODE_H_
