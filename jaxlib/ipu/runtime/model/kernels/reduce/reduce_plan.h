// How a reduction by a fold reads its elements: which, in what order, and by
// what means.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_PLAN_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_space.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"

namespace ipu::model::IPU_SIMD_NS {

// A reduction's two innermost axes are x, kept, and y, reduced. Elements that
// lie side by side along y are folded as rows, else as columns.
struct ReducePlan {
  const Fold* fold = nullptr;
  int64_t item_size = 0;  // bytes of what is folded
  ReduceSpace outer;      // without x and y
  ReduceAxis x, y;
  bool by_rows = false;
  int64_t reduced = 1;     // reduced points for one kept one
  double nanoseconds = 0;  // per element

  // Reads the elements; none if they are read where operand `direct` is.
  std::optional<RegisterProgram> program;
  size_t direct = 0;
  View source;
  bool has_indices = false;   // the program gives an index with each element
  bool wide_indices = false;  // of 64 bits
  bool signed_indices = false;

  std::vector<View> results;
  std::string init;  // ARGMAX, ARGMIN: a total, if there are no elements
};

// INVALID_ARGUMENT or DATA_LOSS for fields that do not fit the compute set.
StatusOr<ReducePlan> MakeReducePlan(const ComputeSet& set,
                                    const program::Reduce& fields);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_PLAN_H_
