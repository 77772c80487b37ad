// Replaces runs of a plan's steps by machine code.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/register_rare.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// The function of a step that is machine code, its payload; `d` is its index in
// Plan::native.
void RunNative(const Step& s, const Frame& f);

// A plan whose steps are numbered.
struct NumberedPlan {
  Plan& plan;
  // What each step computes, null for sources.
  std::span<const program::Instruction* const> instructions;
  const program::Instruction* first_instruction;  // of the program
  std::span<const program::RareSide> sides;       // of the program
  uint16_t first_constant;  // slot of the plan's first constant
};

// How an output is stored: the type of its elements if these are dense,
// otherwise kNone, whether they bypass the caches (Operand::streams), and how
// many outputs from this one on have elements that alternate, as the planes of
// complex numbers do; 1 for the others of these.
struct StoredOutput {
  DType dtype = DType::kNone;
  bool streams = false;
  size_t alternate = 1;
};

// Whether machine code stores the outputs of such a space alternately, if they
// have elements this far apart.
bool StoresAlternately(int64_t elements, int64_t spacing);

// `stored[j]` is how output j may be stored. `whole` promises that an iteration
// space that fits into one block is never divided into smaller ones. Leaves the
// plan unchanged if nothing can be compiled.
void MakeNative(const NumberedPlan& numbered,
                const std::vector<StoredOutput>& stored, bool whole);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_
