#include "jaxlib/ipu/runtime/model/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/support/ieee_arithmetic.h"

namespace ipu::model {
namespace {

// About 30 microseconds: longer than the gap between two loops of a program,
// too short to matter otherwise.
constexpr int kSpins = 1000;

int CoresOfThisProcess() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    return CPU_COUNT(&cores);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// The gate through which workers join a loop. One word packs the loop's number,
// the number of workers that have joined and whether it is open, so that
// joining and closing are atomic with respect to each other.
constexpr uint32_t kOpen = 1;
constexpr uint32_t kOneJoined = 2;
constexpr uint32_t kOneLoop = 1u << 12;

uint32_t LoopOf(uint32_t gate) { return gate / kOneLoop; }
uint32_t JoinedOf(uint32_t gate) { return gate % kOneLoop / kOneJoined; }

// A limit of the gate's bits.
constexpr int kMostThreads = kOneLoop / kOneJoined - 1;

}  // namespace

struct ThreadPool::State {
  std::atomic<bool> busy = false;  // a loop is running

  // The current loop. Written while the gate is closed.
  Thunk thunk;
  const void* body;
  int64_t n;
  int64_t chunk;

  std::exception_ptr thrown;  // by the call that set `failed`
  std::atomic<bool> failed = false;

  alignas(64) std::atomic<uint32_t> gate = 0;
  alignas(64) std::atomic<int64_t> next = 0;
  alignas(64) std::atomic<uint32_t> finished = 0;

  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<int> sleepers = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> workers;

  // An exception ends the loop and is rethrown to its caller.
  void RunChunks() {
    try {
      for (;;) {
        const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
        if (begin >= n) return;
        thunk(body, begin, std::min(begin + chunk, n));
      }
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      if (!failed.exchange(true)) thrown = std::current_exception();
    }
  }

  bool Waiting(uint32_t seen) {
    const uint32_t now = gate.load(std::memory_order_seq_cst);
    return !stop.load(std::memory_order_relaxed) &&
           (LoopOf(now) == LoopOf(seen) || !(now & kOpen));
  }

  void Work() {
    const IeeeArithmetic arithmetic;
    uint32_t seen = gate.load();
    while (!stop.load(std::memory_order_relaxed)) {
      for (int i = 0; i < kSpins && Waiting(seen); ++i) _mm_pause();
      if (Waiting(seen)) {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);  // before checking the gate for the last time
        wake.wait(lock, [&] { return !Waiting(seen); });
        sleepers.fetch_sub(1);
        continue;
      }
      uint32_t now = gate.load(std::memory_order_acquire);
      while ((now & kOpen) &&
             !gate.compare_exchange_weak(now, now + kOneJoined,
                                         std::memory_order_acquire)) {
      }
      seen = now;
      if (!(now & kOpen)) continue;
      RunChunks();
      finished.fetch_add(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads)
    : threads_(std::clamp(threads > 0 ? threads : CoresOfThisProcess(), 1,
                          kMostThreads)),
      state_(std::make_unique<State>()) {
  state_->workers.reserve(threads_);
  try {
    for (int i = 1; i < threads_; ++i) {
      state_->workers.emplace_back([s = state_.get()] { s->Work(); });
    }
  } catch (const std::exception&) {
    // Continue with as many threads as the system grants: the caller of a loop
    // always works on it.
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::Run(int64_t n, int64_t grain, Thunk thunk, const void* body) {
  State& s = *state_;
  if (s.busy.exchange(true, std::memory_order_acquire)) {
    thunk(body, 0, n);
    return;
  }
  // Aim for four chunks per thread, so that one delayed thread does not delay
  // the loop.
  const int64_t grains = (n + grain - 1) / grain;
  s.thunk = thunk;
  s.body = body;
  s.n = n;
  s.chunk = std::max<int64_t>(1, grains / (4 * int64_t{threads_})) * grain;
  s.next.store(0, std::memory_order_relaxed);
  s.finished.store(0, std::memory_order_relaxed);
  const uint32_t loop = LoopOf(s.gate.load(std::memory_order_relaxed)) + 1;
  s.gate.store(loop * kOneLoop + kOpen, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    {
      std::lock_guard lock(s.mutex);
    }
    s.wake.notify_all();
  }
  s.RunChunks();
  const uint32_t joined =
      JoinedOf(s.gate.fetch_and(~kOpen, std::memory_order_acquire));
  for (int i = 0; s.finished.load(std::memory_order_acquire) != joined; ++i) {
    if (i < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.failed.load(std::memory_order_relaxed)) [[unlikely]] {
    const std::exception_ptr thrown = std::exchange(s.thrown, nullptr);
    s.failed.store(false, std::memory_order_relaxed);
    s.busy.store(false, std::memory_order_release);
    std::rethrow_exception(thrown);
  }
  s.busy.store(false, std::memory_order_release);
}

}  // namespace ipu::model
