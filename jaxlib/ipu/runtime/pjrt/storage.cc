#include "jaxlib/ipu/runtime/pjrt/storage.h"

#include "jaxlib/ipu/runtime/support/host_allocator.h"

namespace ipu {
namespace {

void RaiseTo(std::atomic<int64_t>* maximum, int64_t value) {
  int64_t seen = maximum->load();
  while (seen < value && !maximum->compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

void MemoryAccount::Take(size_t bytes) {
  const auto signed_bytes = static_cast<int64_t>(bytes);
  RaiseTo(&peak_, in_use_.fetch_add(signed_bytes) + signed_bytes);
  RaiseTo(&largest_, signed_bytes);
  count_.fetch_add(1);
}

Storage::~Storage() {
  if (void* block = data_.load()) {
    HostAllocator::Global().Free(block, bytes_);
    account_->GiveBack(bytes_);
  }
}

void* Storage::data() {
  void* block = data_.load(std::memory_order_acquire);
  if (block != nullptr) return block;
  void* fresh = HostAllocator::Global().Allocate(bytes_);
  if (fresh == nullptr) return nullptr;
  if (!data_.compare_exchange_strong(block, fresh)) {
    HostAllocator::Global().Free(fresh, bytes_);
    return block;  // another thread was first
  }
  account_->Take(bytes_);
  return fresh;
}

}  // namespace ipu
