// A caching allocator for device buffers: host memory that models SRAM.
//
// A training step allocates and frees the same few sizes again and again. Fresh
// memory from the system costs a page fault every 4 KiB (about 10 ms for
// 64 MiB), so freed blocks are cached and reused, the most recently freed
// first. The cache is bounded in three ways: live and cached blocks together
// never exceed the peak of live memory (plus a small floor), cached blocks
// never exceed a fixed size, and a block that is not reused for a while is
// returned to the system.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_HOST_ALLOCATOR_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_HOST_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ipu {

class HostAllocator {
 public:
  // Every block starts at a multiple of this many bytes.
  static constexpr size_t kAlignment = 64;

  // `cache_limit` is the most bytes that are cached.
  explicit HostAllocator(size_t cache_limit = size_t{256} << 20)
      : cache_limit_(cache_limit) {}
  ~HostAllocator() { Trim(); }
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  // The allocator of this process. Never destroyed, so that memory may outlive
  // any client.
  static HostAllocator& Global();

  // Returns null if out of memory. Zero bytes give a valid pointer.
  void* Allocate(size_t bytes);

  // `bytes` must be the size passed to Allocate.
  void Free(void* block, size_t bytes);

  // Returns all cached blocks to the system.
  void Trim();

  size_t live_bytes() const;
  size_t kept_bytes() const;

  // The size class of a request: at most 1/4 larger for small blocks and 1/8
  // for large ones.
  static size_t BlockSize(size_t bytes);

 private:
  struct Kept {
    void* block;
    uint64_t freed_at;  // in numbers of frees
  };
  struct SizeClass {
    size_t block_size = 0;
    std::vector<Kept> kept;  // oldest first
  };

  static int ClassIndex(size_t block_size);
  void ReleaseDownTo(size_t kept_limit);
  void ReleaseUnwanted();

  const size_t cache_limit_;
  mutable std::mutex mutex_;
  std::vector<SizeClass> classes_;
  size_t live_bytes_ = 0;
  size_t kept_bytes_ = 0;
  size_t most_live_bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_HOST_ALLOCATOR_H_
