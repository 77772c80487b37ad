#include "jaxlib/ipu/runtime/model/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/support/ieee_arithmetic.h"

namespace ipu::model {
namespace {

// Every index must be visited once, in ranges that start at multiples of the
// grain.
void CheckCovers(ThreadPool& pool, int64_t n, int64_t grain) {
  std::vector<std::atomic<int>> seen(n);
  std::atomic<bool> aligned = true;
  pool.For(n, grain, [&](int64_t begin, int64_t end) {
    if (begin % grain != 0 || (end % grain != 0 && end != n)) aligned = false;
    for (int64_t i = begin; i < end; ++i) seen[i].fetch_add(1);
  });
  EXPECT_TRUE(aligned);
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(seen[i].load(), 1) << i << " of " << n << " by " << grain;
  }
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 7, 64, 1000, 4097}) {
      for (int64_t grain : {1, 3, 64, 5000}) CheckCovers(pool, n, grain);
    }
  }
}

TEST(ThreadPool, TakesOneThreadPerCoreByDefault) {
  EXPECT_GE(ThreadPool(0).threads(), 1);
}

TEST(ThreadPool, LoopsInABurst) {
  ThreadPool pool(3);
  for (int64_t round = 0; round < 20000; ++round) {
    std::atomic<int64_t> sum = 0;
    pool.For(10, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i + round;
    });
    ASSERT_EQ(sum, 45 + 10 * round);
  }
}

TEST(ThreadPool, WakesUpAfterASleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CheckCovers(pool, 100, 1);
  }
}

// Threads inherit the mode of the one that makes the pool.
TEST(ThreadPool, WorkersKeepDenormals) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flushed to zero, as results and as operands
  ThreadPool pool(3);
  {
    const IeeeArithmetic arithmetic;
    volatile float tiny = 1e-39f;
    std::atomic<int> flushed = 0;
    for (int loop = 0; loop < 100; ++loop) {
      pool.For(64, 1, [&](int64_t, int64_t) {
        if (tiny * 0.5f == 0) ++flushed;
      });
    }
    EXPECT_EQ(flushed, 0);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(before);
}

TEST(ThreadPool, AnotherCallersLoopRunsToo) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) CheckCovers(pool, 50, 1);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, ALoopInALoopRunsToo) {
  ThreadPool pool(2);
  std::atomic<int> count = 0;
  pool.For(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool.For(8, 1,
               [&](int64_t b, int64_t e) { count += static_cast<int>(e - b); });
    }
  });
  EXPECT_EQ(count, 64);
}

TEST(ThreadPool, WhatALoopThrowsReachesItsCaller) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (int64_t bad : {0, 50, 99}) {
      EXPECT_THROW(pool.For(100, 1,
                            [&](int64_t begin, int64_t end) {
                              if (begin <= bad && bad < end) {
                                throw std::bad_alloc();
                              }
                            }),
                   std::bad_alloc);
      CheckCovers(pool, 100, 1);  // the next loop is not affected
    }
    EXPECT_THROW(
        pool.For(100, 1, [](int64_t, int64_t) { throw std::bad_alloc(); }),
        std::bad_alloc);
    CheckCovers(pool, 100, 1);
  }
}

}  // namespace
}  // namespace ipu::model
