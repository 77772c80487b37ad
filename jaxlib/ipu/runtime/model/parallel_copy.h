// The moves of one exchange happen at once; a processor does them one after
// the other. Where a move would overwrite what another still has to read (a
// loop that swaps its two carries), they are reordered or go through scratch
// memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model {

struct ParallelCopy {
  // To be run in order. The plans within a group do not depend on each other.
  std::vector<std::vector<CopyPlan>> groups;
  int64_t scratch_bytes = 0;  // used from `scratch_offset` of the arena on
};

// `storage[b]` names the memory behind base b: two bases that may be the same
// memory (an argument and the result that is written over it) have the same.
ParallelCopy ScheduleCopies(std::vector<CopyPlan> plans,
                            const std::vector<uint32_t>& storage,
                            int64_t scratch_offset);

// Whether both views are the same elements in the same places.
bool SamePlaces(const View& a, const View& b);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_PARALLEL_COPY_H_
