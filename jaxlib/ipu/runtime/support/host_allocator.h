// Memory for device buffers: host memory that stands for SRAM.
//
// A training step allocates and frees the same few sizes again and again. Fresh
// memory from the system costs a page fault every 4 KiB (64 MiB: some 10 ms),
// so freed blocks are kept and handed out again, the most recently freed first.
// What is kept is bounded three ways: live and kept blocks together never
// exceed the most that was ever live (plus a small floor), kept blocks never
// exceed a fixed size, and a block nobody wanted for a while goes back.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_HOST_ALLOCATOR_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_HOST_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ipu {

class HostAllocator {
 public:
  // Bytes: every block starts at a multiple of this.
  static constexpr size_t kAlignment = 64;

  // `cache_limit`: the most bytes kept for later.
  explicit HostAllocator(size_t cache_limit = size_t{256} << 20)
      : cache_limit_(cache_limit) {}
  ~HostAllocator() { Trim(); }
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  // The one of this process. Never destroyed, so that memory may outlive any
  // client.
  static HostAllocator& Global();

  // Null when the system has no memory. Zero bytes give a valid pointer.
  void* Allocate(size_t bytes);

  // `bytes` as given to Allocate.
  void Free(void* block, size_t bytes);

  // Gives back everything that is kept.
  void Trim();

  size_t live_bytes() const;
  size_t kept_bytes() const;

  // What a request of `bytes` really takes: a size class, at most 1/4 more for
  // small blocks and 1/8 for large ones.
  static size_t BlockSize(size_t bytes);

 private:
  struct Kept {
    void* block;
    uint64_t freed_at;  // on the clock of frees
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
