// A pool of memory for the temporaries of runs.
//
// Every run takes an arena of its own, whose contents are undefined before and
// after. All programs of an engine share the pool. The most recently freed of
// the smallest arenas that fit is handed out first, because its pages are
// mapped and its lines are cached.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace ipu::model {

struct FreeDeleter {
  void operator()(char* block) const { std::free(block); }
};

// Uninitialised memory. Large blocks request huge pages.
struct Arena {
  std::unique_ptr<char, FreeDeleter> data;  // null if out of memory
  size_t capacity = 0;

  // Aligned to 64 bytes.
  static Arena Allocate(size_t bytes);
};

class ArenaPool {
 public:
  ArenaPool() { free_.reserve(kKept); }  // so that Return cannot fail

  Arena Take(size_t bytes);
  void Return(Arena arena);

 private:
  static constexpr size_t kKept = 4;

  std::mutex mutex_;
  std::vector<Arena> free_;  // the most recently used is last
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_
