// The memory of a buffer, and the account that a device keeps of it.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ipu {

// How much of a device's memory buffers take.
class MemoryAccount {
 public:
  void Take(size_t bytes);
  void GiveBack(size_t bytes) { in_use_.fetch_sub(bytes); }

  int64_t in_use() const { return in_use_.load(); }
  int64_t peak() const { return peak_.load(); }
  int64_t count() const { return count_.load(); }
  int64_t largest() const { return largest_.load(); }

 private:
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> largest_{0};
};

// A block of memory that comes into being when it is first asked for: results
// of queued work take no memory before the work runs.
class Storage {
 public:
  // `account` must outlive the storage.
  Storage(size_t bytes, MemoryAccount* account)
      : bytes_(bytes), account_(account) {}
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
  MemoryAccount* const account_;
  std::atomic<void*> data_{nullptr};
  std::atomic<int> pins_{0};
};

using StoragePtr = std::shared_ptr<Storage>;

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_STORAGE_H_
