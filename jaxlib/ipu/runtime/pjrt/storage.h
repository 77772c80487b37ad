// The memory of a buffer: host memory, which models SRAM (sram.h).

#ifndef JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// A block of memory that is allocated on first use, so that results of queued
// work take no memory before the work runs.
class Storage {
 public:
  explicit Storage(size_t bytes) : bytes_(bytes) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  size_t bytes() const { return bytes_; }

  // Returns null if out of memory. Thread-safe.
  void* data();

  // A pinned storage is being read outside its device's queue and must not be
  // written to again. Pinning requires the lock of the buffer that owns the
  // storage.
  void Pin() { pins_.fetch_add(1); }
  void Unpin() { pins_.fetch_sub(1); }
  bool IsPinned() const { return pins_.load() != 0; }

 private:
  const size_t bytes_;
  std::atomic<void*> data_{nullptr};
  std::atomic<int> pins_{0};
};

using StoragePtr = std::shared_ptr<Storage>;

// The error of a storage without memory.
Status NoMemory(size_t bytes);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
