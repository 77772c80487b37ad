#include "jaxlib/ipu/runtime/model/arena_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ipu::model {
namespace {

constexpr size_t kCacheLine = 64;
// The minimum size, so that small arenas can be reused by more programs; a
// guess, as only kKept of them are kept.
constexpr size_t kSmallest = size_t{64} << 10;

// Rounds up by at most an eighth, so that programs of similar size share
// arenas.
size_t RoundUp(size_t bytes) {
  const size_t step = std::max(std::bit_floor(bytes) / 8, kCacheLine);
  return (bytes + step - 1) / step * step;
}

}  // namespace

AlignedBytes ArenaPool::Take(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->size() >= bytes &&
          (best == free_.end() || it->size() <= best->size())) {
        best = it;
      }
    }
    if (best != free_.end()) {
      AlignedBytes arena = std::move(*best);
      free_.erase(best);
      return arena;
    }
  }
  return AlignedBytes::Allocate(RoundUp(std::max(bytes, kSmallest)));
}

void ArenaPool::Return(AlignedBytes arena) {
  AlignedBytes evicted;  // freed after the lock is released
  std::lock_guard lock(mutex_);
  if (free_.size() == kKept) {
    evicted = std::move(free_.front());
    free_.erase(free_.begin());
  }
  free_.push_back(std::move(arena));
}

}  // namespace ipu::model
