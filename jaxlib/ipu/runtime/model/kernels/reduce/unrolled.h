// Reductions of a few elements for each of many totals, as maps.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_UNROLLED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_UNROLLED_H_

#include <optional>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/evaluator.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_plan.h"

namespace ipu::model::IPU_SIMD_NS {

// A program over the totals that computes all elements of each of them, every
// one from operands of its own, and combines them. Elements are then vectors of
// one for each total, whichever way they lie in memory: sums over the last
// dimension of points, or an argmax of a few classes. Nothing where `plan`'s
// way is likely to take less time. `fields` must have been checked.
std::optional<Evaluation> Unrolled(const ComputeSet& set,
                                   const program::Reduce& fields,
                                   const ReducePlan& plan);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_UNROLLED_H_
