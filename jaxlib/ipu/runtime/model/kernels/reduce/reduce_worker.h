// Executes a reduction's plan on one thread: evaluates elements and folds them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_WORKER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_WORKER_H_

#include <cstdint>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_plan.h"

namespace ipu::model::IPU_SIMD_NS {

// A part of a reduction: the points [begin, end) along x at one index of the
// outer parallel axes, and the reduced elements [first, last) of each.
struct ReducePart {
  int64_t outer;
  int64_t begin, end;
  int64_t first, last;
};

// The state of one thread.
class ReduceWorker {
 public:
  ReduceWorker(const ReducePlan& plan, const Memory& memory);

  // Folds a part's elements into the totals of its points.
  void Fold(const ReducePart& part, char* totals);

 private:
  void FoldDirect(const ReducePart& part, char* totals);
  void FoldRows(const ReducePart& part, char* totals);
  void FoldColumns(const ReducePart& part, char* totals);

  FoldInput Eval(int64_t begin, int64_t rows, int64_t columns, int64_t first);
  void EvalInto(int64_t begin, int64_t count, int64_t at);
  FoldInput Input(const void* values, const void* indices, int64_t rows,
                  int64_t columns, int64_t first);
  const int64_t* Indices(const void* from, int64_t n);

  const ReducePlan& plan_;
  const Memory& memory_;
  std::optional<RegisterProgram::State> state_;
  char* values_ = nullptr;
  char* indices_ = nullptr;
  int64_t* long_indices_ = nullptr;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_REDUCE_WORKER_H_
