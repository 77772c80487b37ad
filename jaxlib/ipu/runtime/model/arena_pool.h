// A pool of memory for the temporaries of runs.
//
// Every run takes an arena of its own, whose contents are undefined before and
// after. All programs of an engine share the pool. The most recently freed of
// the smallest arenas that fit is handed out first, because its pages are
// mapped and its lines are cached.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_

#include <cstddef>
#include <mutex>
#include <vector>

#include "jaxlib/ipu/runtime/support/aligned_bytes.h"

namespace ipu::model {

class ArenaPool {
 public:
  ArenaPool() { free_.reserve(kKept); }  // so that Return cannot fail

  AlignedBytes Take(size_t bytes);
  void Return(AlignedBytes arena);

 private:
  static constexpr size_t kKept = 4;

  std::mutex mutex_;
  std::vector<AlignedBytes> free_;  // the most recently used is last
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_
