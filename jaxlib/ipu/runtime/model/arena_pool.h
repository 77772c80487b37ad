// Memory for the temporaries of runs.
//
// Every run needs an arena of its own, whose contents mean nothing before and
// after. Arenas are shared by all programs of an engine and the most recently
// freed is handed out first: its pages are mapped and its lines are cached.

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

// Uninitialised memory; large blocks ask for huge pages.
struct Arena {
  std::unique_ptr<char, FreeDeleter> data;  // null if there is no memory
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
  std::vector<Arena> free_;  // the most recently used last
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_ARENA_POOL_H_
