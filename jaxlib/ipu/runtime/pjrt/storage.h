// The memory of a buffer: the host's, which stands for SRAM (sram.h).

#ifndef JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ipu {

// A block of memory that comes into being when it is first asked for: results
// of queued work take no memory before the work runs.
class Storage {
 public:
  explicit Storage(size_t bytes) : bytes_(bytes) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  size_t bytes() const { return bytes_; }

  // Null when there is no memory. From any thread.
  void* data();

  // A pinned storage is being read outside its device's queue: it must not be
  // written to again. Pins are taken under the lock of the buffer that owns
  // the storage.
  void Pin() { pins_.fetch_add(1); }
  void Unpin() { pins_.fetch_sub(1); }
  bool IsPinned() const { return pins_.load() != 0; }

 private:
  const size_t bytes_;
  std::atomic<void*> data_{nullptr};
  std::atomic<int> pins_{0};
};

using StoragePtr = std::shared_ptr<Storage>;

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
