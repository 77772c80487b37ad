// Runs of a plan's steps, replaced by machine code.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// A step that is machine code: `imm` is its address, `d` its number in
// Plan::native.
void RunNative(const Step& s, const Frame& f);

// `instructions`: what each of the plan's steps computes, null for sources.
// `stored`: the element types of outputs that may be stored as dense elements;
// 0 for others. `whole`: if the iteration space fits into a block, no block is
// part of it. Where nothing can be compiled the plan stays as it is.
void MakeNative(std::span<const program::Instruction* const> instructions,
                const std::vector<uint8_t>& stored, bool whole, Plan* plan);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_STEPS_H_
