// Makes the steps of a tape. Each has its kind, of which machine code is made
// (step_emitter.cc), and a function that does the same.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_MAKE_STEP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_MAKE_STEP_H_

#include <cstdint>
#include <span>

#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// `d` is the slot of the result, `operand` that of the operand.

TapeStep MakeOpaque(StepFn fn, uint16_t d, Payload payload);

// Runs a nested loop, which must stay where it is.
TapeStep MakeLoop(const TapeLoop& loop);

// Runs machine code on `count` elements, whose slots begin at `first`.
TapeStep MakeRun(Payload code, uint16_t first, uint32_t count);

TapeStep MakeCompute(const program::Instruction& instruction,
                     std::span<const uint16_t> operands, uint16_t d,
                     uint8_t lanes);

// Whether MakeCopy copies an item of this size: 1, 2, 4 or 8 bytes.
bool IsCopied(uint32_t bytes);
TapeStep MakeCopy(uint32_t bytes, uint16_t d, uint16_t operand);

// Copies `lanes` values of `width` bytes.
TapeStep MakeMove(uint32_t width, uint8_t lanes, uint16_t d, uint16_t operand);

// Stores values as elements of another type.
TapeStep MakeStore(DType dtype, uint32_t width, uint8_t lanes, uint16_t d,
                   uint16_t operand);

TapeStep MakeSpread(uint32_t width, uint8_t lanes, uint16_t d,
                    uint16_t operand);

TapeStep MakeSum(program::RegisterType type, uint8_t lanes, uint16_t d,
                 uint16_t operand);

// Moves `lanes` values of `width` bytes, or a single one of 1 or 2, from the
// window of a tensor, or to it. The slots of its indices begin at `index`.
// `start` must stay where it is.
TapeStep MakeSlice(const WindowStart& start, uint32_t width, uint8_t lanes,
                   uint16_t d, uint16_t index, uint16_t tensor);
TapeStep MakeUpdate(const WindowStart& start, uint32_t width, uint8_t lanes,
                    uint16_t tensor, uint16_t index, uint16_t operand);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_MAKE_STEP_H_
