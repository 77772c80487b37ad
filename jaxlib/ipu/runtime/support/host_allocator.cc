#include "jaxlib/ipu/runtime/support/host_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace ipu {
namespace {

// Blocks of at least this size request huge pages: there are 512 times fewer
// page faults, and rounding up to 2 MiB costs at most an eighth.
constexpr size_t kHugeBlock = size_t{16} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

// Blocks of at least this size have eight size classes per power of two,
// smaller ones four; a guess: rounding up wastes less of large ones, and small
// ones are reused more often.
constexpr size_t kLargeBlock = size_t{64} << 10;

// A limit: more than any machine has; such requests fail without asking the
// system.
constexpr size_t kTooLarge = size_t{1} << 46;

// May always be cached, even if less was ever live.
constexpr size_t kFloor = size_t{4} << 20;

// A block that has not been reused for this many frees is returned to the
// system. This is checked every kLookEvery frees.
constexpr uint64_t kPatience = 1024;
constexpr uint64_t kLookEvery = 256;

void* SystemAllocate(size_t size) {
  if (size < kHugeBlock) {
    return std::aligned_alloc(HostAllocator::kAlignment, size);
  }
  // Size classes from here on are multiples of a huge page.
  void* block = std::aligned_alloc(kHugePage, size);
  // Best effort: without huge pages everything works, only more slowly.
  if (block != nullptr) madvise(block, size, MADV_HUGEPAGE);
  return block;
}

}  // namespace

HostAllocator& HostAllocator::Global() {
  static HostAllocator* allocator = new HostAllocator;
  return *allocator;
}

size_t HostAllocator::BlockSize(size_t bytes) {
  if (bytes <= 4 * kAlignment) {
    return std::max((bytes + kAlignment - 1) / kAlignment, size_t{1}) *
           kAlignment;
  }
  const int steps_log2 = bytes < kLargeBlock ? 2 : 3;
  const int log2 = std::bit_width(bytes) - 1;
  const size_t step = size_t{1} << (log2 - steps_log2);
  return (bytes + step - 1) & ~(step - 1);
}

int HostAllocator::ClassIndex(size_t block_size) {
  const int log2 = std::bit_width(block_size) - 1;
  const size_t eighth = (block_size - (size_t{1} << log2)) >> (log2 - 3);
  return 8 * (log2 - 6) + static_cast<int>(eighth);
}

void* HostAllocator::Allocate(size_t bytes) {
  if (bytes > kTooLarge) return nullptr;
  const size_t size = BlockSize(bytes);
  std::unique_lock lock(mutex_);
  const size_t index = ClassIndex(size);
  if (index < classes_.size() && !classes_[index].kept.empty()) {
    void* block = classes_[index].kept.back().block;
    classes_[index].kept.pop_back();
    kept_bytes_ -= size;
    live_bytes_ += size;
    most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
    return block;
  }
  // Release cached blocks to make room for fresh memory, so that the process
  // never holds more than its peak of live memory.
  const size_t wanted = live_bytes_ + size;
  const size_t spare =
      most_live_bytes_ > wanted ? most_live_bytes_ - wanted : 0;
  ReleaseDownTo(std::max(spare, kFloor));
  lock.unlock();
  void* block = SystemAllocate(size);
  if (block == nullptr) {
    Trim();
    block = SystemAllocate(size);
    if (block == nullptr) return nullptr;
  }
  lock.lock();
  live_bytes_ += size;
  most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
  return block;
}

void HostAllocator::Free(void* block, size_t bytes) {
  const size_t size = BlockSize(bytes);
  std::lock_guard lock(mutex_);
  live_bytes_ -= size;
  if (size > cache_limit_) {
    std::free(block);
    return;
  }
  const size_t index = ClassIndex(size);
  try {
    if (index >= classes_.size()) classes_.resize(index + 1);
    classes_[index].kept.push_back({block, ++clock_});
  } catch (const std::bad_alloc&) {  // no memory for the bookkeeping
    std::free(block);
    return;
  }
  classes_[index].block_size = size;
  kept_bytes_ += size;
  if (kept_bytes_ > cache_limit_) ReleaseDownTo(cache_limit_);
  if (clock_ % kLookEvery == 0) ReleaseUnwanted();
}

void HostAllocator::Trim() {
  std::lock_guard lock(mutex_);
  ReleaseDownTo(0);
}

// Releases large blocks first, because they are few, and the oldest of a class
// first.
void HostAllocator::ReleaseDownTo(size_t kept_limit) {
  for (size_t i = classes_.size(); i > 0 && kept_bytes_ > kept_limit; --i) {
    SizeClass& size_class = classes_[i - 1];
    size_t count = 0;
    while (count < size_class.kept.size() && kept_bytes_ > kept_limit) {
      std::free(size_class.kept[count++].block);
      kept_bytes_ -= size_class.block_size;
    }
    size_class.kept.erase(size_class.kept.begin(),
                          size_class.kept.begin() + count);
  }
}

void HostAllocator::ReleaseUnwanted() {
  for (SizeClass& size_class : classes_) {
    size_t count = 0;
    while (count < size_class.kept.size() &&
           size_class.kept[count].freed_at + kPatience < clock_) {
      std::free(size_class.kept[count++].block);
      kept_bytes_ -= size_class.block_size;
    }
    size_class.kept.erase(size_class.kept.begin(),
                          size_class.kept.begin() + count);
  }
}

size_t HostAllocator::live_bytes() const {
  std::lock_guard lock(mutex_);
  return live_bytes_;
}

size_t HostAllocator::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace ipu
