// The plan of a reduction by a fold: which elements it reads, in which order
// and how. Made once when a program is loaded; reduce_worker.h executes it.

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

// x is the innermost parallel axis and y the innermost reduced axis. Elements
// that are adjacent along y are folded as rows, others as columns.
struct ReducePlan {
  const Fold* fold = nullptr;
  int64_t item_size = 0;  // bytes of an element that is folded
  ReduceSpace outer;      // without x and y
  ReduceAxis x, y;
  bool by_rows = false;
  // So many adjacent columns of x have one result: their totals are merged.
  int64_t merged = 1;
  int64_t reduced = 1;     // elements per total
  double nanoseconds = 0;  // per element

  // Computes the elements. If empty, operand `direct` is read instead.
  std::optional<RegisterProgram> program;
  size_t direct = 0;
  View source;
  bool has_indices = false;   // the program also computes indices
  bool wide_indices = false;  // of 64 bits
  bool signed_indices = false;

  // Small windows of operand `direct`, as in pooling: folded each on its own,
  // vectorised along x, in rows along `rows`. Empty for other reductions.
  std::vector<int64_t> places;  // a window's elements, from its first
  ReduceAxis rows;

  std::vector<View> results;
  std::string init;  // ARGMAX, ARGMIN: the total if there are no elements
};

// INVALID_ARGUMENT or DATA_LOSS if the fields do not match the compute set.
StatusOr<ReducePlan> MakeReducePlan(const ComputeSet& set,
                                    const program::Reduce& fields);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_PLAN_H_
