#include "jaxlib/ipu/runtime/pjrt/storage.h"

#include <string>

#include "jaxlib/ipu/runtime/support/host_allocator.h"

namespace ipu {

Storage::~Storage() {
  void* block = data_.load();
  if (block != nullptr) HostAllocator::Global().Free(block, bytes_);
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
  return fresh;
}

Status NoMemory(size_t bytes) {
  return ResourceExhausted("out of host memory for an array of " +
                           std::to_string(bytes) + " bytes");
}

}  // namespace ipu
