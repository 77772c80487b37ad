// The iteration space of a reduction, in an order that suits the memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// One or more neighbouring dimensions that every operand and result walks
// with one stride. Strides count elements.
struct ReduceAxis {
  int64_t extent = 1;
  std::vector<int64_t> operands;
  std::vector<int64_t> results;
  size_t dimension = 0;  // of the iteration space; the first of them
};

// The axes of a reduction, each group from the outermost in. Dimensions of
// one element have been left out and neighbours joined, where nothing asks for
// the index along them.
struct ReduceSpace {
  std::vector<ReduceAxis> kept;
  std::vector<ReduceAxis> reduced;

  int64_t kept_size() const;
  int64_t reduced_size() const;
};

// `primary` is the operand whose memory the order should follow. The reduced
// axes stay in the given order if `in_order`.
ReduceSpace MakeReduceSpace(const ComputeSet& set, size_t num_reduced,
                            const program::RegisterCode& code, size_t primary,
                            bool in_order);

// The operand with the most elements: its memory is the most to read.
size_t LargestOperand(const ComputeSet& set);

// A register program over `order`, which names all axes of a space that its
// IOTAs count along.
StatusOr<RegisterProgram> MakeReduceProgram(
    const ComputeSet& set, const std::vector<ReduceAxis>& order,
    program::RegisterCode code);

// The offsets, in elements of result `result`, of index `i` of `axes`.
int64_t ResultOffset(const std::vector<ReduceAxis>& axes, size_t result,
                     int64_t i);
int64_t OperandOffset(const std::vector<ReduceAxis>& axes, size_t operand,
                      int64_t i);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_SPACE_H_
