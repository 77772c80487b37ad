#include "jaxlib/ipu/runtime/support/host_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace ipu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(HostAllocatorTest, BlocksAreAlignedAndLargeEnough) {
  HostAllocator allocator;
  for (size_t bytes : {0, 1, 63, 64, 65, 255, 257, 1000, 4097, 65537, 1 << 20,
                       (1 << 20) + 1, (16 << 20) + 1, 33 << 20}) {
    EXPECT_GE(HostAllocator::BlockSize(bytes), bytes);
    EXPECT_LE(HostAllocator::BlockSize(bytes), bytes + bytes / 4 + 64);
    void* block = allocator.Allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % HostAllocator::kAlignment,
              0);
    std::memset(block, 0xff, bytes);
    allocator.Free(block, bytes);
  }
  EXPECT_EQ(allocator.live_bytes(), 0);
}

TEST(HostAllocatorTest, SizeClassesNeverMixSizes) {
  // Requests that may share a block must have the same block size.
  for (size_t bytes = 1; bytes < 300'000; bytes += 37) {
    const size_t size = HostAllocator::BlockSize(bytes);
    EXPECT_EQ(HostAllocator::BlockSize(size), size) << bytes;
  }
}

TEST(HostAllocatorTest, ReusesTheLastFreedBlockFirst) {
  HostAllocator allocator;
  void* first = allocator.Allocate(3 * kMiB);
  allocator.Free(first, 3 * kMiB);
  EXPECT_EQ(allocator.Allocate(3 * kMiB), first);
  allocator.Free(first, 3 * kMiB);
}

TEST(HostAllocatorTest, LiveAndCachedBytesStayBelowThePeak) {
  HostAllocator allocator;
  void* a = allocator.Allocate(32 * kMiB);
  void* b = allocator.Allocate(32 * kMiB);
  allocator.Free(a, 32 * kMiB);
  allocator.Free(b, 32 * kMiB);
  EXPECT_EQ(allocator.kept_bytes(), 64 * kMiB);
  // Another size cannot reuse the cached blocks, which are released first.
  void* c = allocator.Allocate(48 * kMiB);
  EXPECT_LE(allocator.live_bytes() + allocator.kept_bytes(), 64 * kMiB);
  allocator.Free(c, 48 * kMiB);
}

TEST(HostAllocatorTest, CachesNoMoreThanTheLimit) {
  HostAllocator allocator(8 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(allocator.Allocate(kMiB));
  for (void* block : blocks) allocator.Free(block, kMiB);
  EXPECT_LE(allocator.kept_bytes(), 8 * kMiB);
  void* large = allocator.Allocate(9 * kMiB);
  allocator.Free(large, 9 * kMiB);
  EXPECT_LE(allocator.kept_bytes(), 8 * kMiB);
}

TEST(HostAllocatorTest, ReleasesBlocksThatStayUnused) {
  HostAllocator allocator;
  allocator.Free(allocator.Allocate(32 * kMiB), 32 * kMiB);
  EXPECT_GE(allocator.kept_bytes(), 32 * kMiB);
  for (int i = 0; i < 3000; ++i) allocator.Free(allocator.Allocate(64), 64);
  EXPECT_LT(allocator.kept_bytes(), kMiB);
}

TEST(HostAllocatorTest, FailsWhenTheSystemIsOutOfMemory) {
  HostAllocator allocator;
  EXPECT_EQ(allocator.Allocate(size_t{1} << 60), nullptr);
  EXPECT_EQ(allocator.Allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(allocator.live_bytes(), 0);
}

TEST(HostAllocatorTest, ServesSeveralThreads) {
  HostAllocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, t] {
      for (size_t i = 0; i < 2000; ++i) {
        const size_t bytes = 64 + (i * 977 + t) % 5000;
        auto* block = static_cast<uint8_t*>(allocator.Allocate(bytes));
        block[0] = block[bytes - 1] = static_cast<uint8_t>(t);
        EXPECT_EQ(block[0], t);
        allocator.Free(block, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.live_bytes(), 0);
}

}  // namespace
}  // namespace ipu
