// Selects how operands and indices are loaded, and adds the steps that do it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_SOURCES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_SOURCES_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_builder.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

struct Loaded {
  Place place;        // where steps read the value
  Place buffer = {};  // a register that is in use for as long as `place` is
};

// A LOAD of an operand of the iteration space; `moved` as in MovedValues.
Loaded LoadOperand(const std::vector<int64_t>& shape, const Operand& operand,
                   uint32_t width, bool moved, Rate rate, PlanBuilder& builder);

// A LOAD of a block that a function's caller provides.
Loaded LoadBlock(uint16_t operand, uint32_t width, PlanBuilder& builder);

// An IOTA along dimension `imm`.
Loaded LoadIota(const std::vector<int64_t>& shape,
                const program::Instruction& iota, PlanBuilder& builder);
// The type of the indices that a step loads, a float or unsigned; nothing if it
// is no such step.
std::optional<program::RegisterType> TypeOfIota(StepFn fn);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_SOURCES_H_
