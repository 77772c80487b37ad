// Orders the moves of one exchange, which happen simultaneously, for a
// processor that executes them one after another. Where a move would overwrite
// what another still has to read (a loop that swaps two carried values), they
// are reordered or staged through scratch memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model {

struct ParallelCopy {
  // To be run in order. The copies within a group are independent.
  std::vector<std::vector<CopyPlan>> groups;
  int64_t scratch_bytes = 0;  // used in the arena from `scratch_offset` on
};

// `storage[b]` identifies the memory behind base b: bases that may share memory
// (an argument and the result that overwrites it) have the same value.
ParallelCopy ScheduleCopies(std::vector<CopyPlan> plans,
                            const std::vector<uint32_t>& storage,
                            int64_t scratch_offset);

// Whether both views have the same elements at the same addresses.
bool SamePlaces(const View& a, const View& b);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_
