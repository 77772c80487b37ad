#include "jaxlib/ipu/runtime/model/arena_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace ipu::model {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// The minimum size, so that small arenas can be reused by more programs.
constexpr size_t kSmallest = size_t{64} << 10;

// Rounds up by at most an eighth, so that programs of similar size share
// arenas.
size_t RoundUp(size_t bytes) {
  const size_t step = std::max(std::bit_floor(bytes) / 8, kCacheLine);
  return (bytes + step - 1) / step * step;
}

}  // namespace

Arena Arena::Allocate(size_t bytes) {
  const bool huge = bytes >= 4 * kHugePage;
  const size_t page = huge ? kHugePage : kCacheLine;
  const size_t capacity = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  Arena arena;
  arena.data.reset(static_cast<char*>(std::aligned_alloc(page, capacity)));
  arena.capacity = capacity;
  // Best effort: without huge pages everything works, only more slowly.
  if (huge && arena.data) madvise(arena.data.get(), capacity, MADV_HUGEPAGE);
  return arena;
}

Arena ArenaPool::Take(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->capacity >= bytes &&
          (best == free_.end() || it->capacity <= best->capacity)) {
        best = it;
      }
    }
    if (best != free_.end()) {
      Arena arena = std::move(*best);
      free_.erase(best);
      return arena;
    }
  }
  return Arena::Allocate(RoundUp(std::max(bytes, kSmallest)));
}

void ArenaPool::Return(Arena arena) {
  Arena evicted;  // freed after the lock is released
  std::lock_guard lock(mutex_);
  if (free_.size() == kKept) {
    evicted = std::move(free_.front());
    free_.erase(free_.begin());
  }
  free_.push_back(std::move(arena));
}

}  // namespace ipu::model
