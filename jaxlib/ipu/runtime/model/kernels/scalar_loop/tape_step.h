// A step on the tape of a loop over single elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

struct TapeStep {
  Step step;
  program::Instruction instruction = kUnknown;
  // For a CONVERT, the element type that it stores; kNone for register values.
  DType stored = DType::kNone;
};

// The locations of a tape's slots.
struct TapePlaces {
  // The first slot with the same location as each slot.
  std::vector<uint16_t> same;
  std::vector<bool> in_memory;
};

// Replaces runs of steps by machine code, which is appended to `code`, and
// returns the resulting steps.
std::vector<Step> MakeNativeTape(std::span<const TapeStep> steps,
                                 const TapePlaces& places,
                                 std::vector<CodeHandle>& code);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_
