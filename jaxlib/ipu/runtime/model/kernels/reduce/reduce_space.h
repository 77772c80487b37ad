// The iteration space of a reduction, with axes ordered for memory locality.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// One or more adjacent dimensions along which every operand and result has a
// single stride. Strides are in elements.
struct ReduceAxis {
  int64_t extent = 1;
  std::vector<int64_t> operands;
  std::vector<int64_t> results;
  size_t dimension = 0;  // the first of these dimensions
};

// The axes of a reduction: the parallel ones (`kept`) and the reduced ones,
// each group outermost first. Unless the register program has an IOTA, which
// needs the index along a dimension, axes of extent 1 are dropped and adjacent
// axes merged.
struct ReduceSpace {
  std::vector<ReduceAxis> kept;
  std::vector<ReduceAxis> reduced;

  int64_t kept_size() const;
  int64_t reduced_size() const;
};

// Orders the axes for the memory of operand `primary`. If `in_order`, the
// reduced axes keep their order.
ReduceSpace MakeReduceSpace(const ComputeSet& set, size_t num_reduced,
                            const program::RegisterCode& code, size_t primary,
                            bool in_order);

// The operand with the most elements, which dominates memory traffic.
size_t LargestOperand(const ComputeSet& set);

// A register program over the axes in `order`, which must contain every
// dimension that an IOTA names.
StatusOr<RegisterProgram> MakeReduceProgram(
    const ComputeSet& set, const std::vector<ReduceAxis>& order,
    program::RegisterCode code);

// The offset, in elements, of result `result` at index `i` of `axes`; the same
// for operand `operand`.
int64_t ResultOffset(const std::vector<ReduceAxis>& axes, size_t result,
                     int64_t i);
int64_t OperandOffset(const std::vector<ReduceAxis>& axes, size_t operand,
                      int64_t i);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_
