// The kernel factories of this build, one table per instruction set.
//
// Kernel sources (model/kernels and codelets/*.cc) are compiled once for each
// instruction set, in the namespace IPU_SIMD_NS. The loader picks the fastest
// table at start-up.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

// Copies one view to another of the same shape and item size.
struct CopyPlan {
  View source;
  View destination;
};

// A part of an iteration: a kernel, a nested loop, or else one of several
// branches.
struct LoopPart {
  const Kernel* kernel = nullptr;
  // A nested loop, of as many trips or, if that is 0, with a condition. Then
  // `counts` is of its trips.
  const ScalarLoop* loop = nullptr;
  uint64_t trips = 0;
  std::vector<std::vector<const Kernel*>> branches = {};
  // The scalar that selects a branch: a boolean, of which the true branch is
  // first, or an index of 32 bits. Those out of bounds select the last branch.
  View selector = {};
  // Of 64-bit counts in the arena, of how often each branch has run.
  int64_t counts = 0;
};

// A loop, of which all nested loops are run from tapes.
struct ScalarLoopParts {
  std::vector<const Kernel*> condition;
  std::vector<LoopPart> body;
  const View* predicate;  // null: a fixed trip count
  // Whether kernels that have no steps of their own are called. An iteration
  // then may take any time.
  bool calls_kernels;
  const std::vector<uint32_t>& storage;  // as in ScheduleCopies
};

// Writes from[0][i] * from[1][i] * ... for the operation * of a monoid to each
// array of `to`, of n elements; these may be arrays of `from`. If `streams`,
// results bypass the caches.
using CombineFn = void (*)(std::span<const char* const> from,
                           std::span<char* const> to, int64_t n, bool streams);

struct Factories {
  // The kernel of a codelet: MakeKernel of its fields (kernels/codelets.h).
  KernelOr (*kernel)(const ComputeSet&, const program::Fields&);
  KernelOr (*copy)(std::vector<CopyPlan>);
  // Null if the loop cannot be run from a tape.
  std::unique_ptr<ScalarLoop> (*scalar_loop)(const ScalarLoopParts&);
  // Null if the monoid is none of the element type.
  CombineFn (*combine)(DType dtype, program::ReduceKind kind);
};

namespace avx2 {
const Factories& Table();
}
namespace avx512 {
const Factories& Table();
}

// The tables of this build that this processor supports, the fastest one last;
// none if it does not have AVX2. --define=kernels=avx2 leaves AVX-512 out.
const std::vector<const Factories*>& SupportedFactories();

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_
