// A fork-join thread pool for the model's kernels.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_THREAD_POOL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_THREAD_POOL_H_

#include <algorithm>
#include <cstdint>
#include <memory>

namespace ipu::model {

// Splits loops over a fixed set of threads that includes the caller. After a
// loop workers spin for a short while, since loops come in bursts, and then
// sleep. Runs one loop at a time: a concurrent caller runs its loop alone. An
// exception thrown by the body reaches the caller of the loop.
class ThreadPool {
 public:
  // `threads` <= 0: one per core that this process may use.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The duration from which dividing a loop among threads pays off; a guess: it
  // depends on how soon a machine's threads wake, which is some microseconds.
  static constexpr double kWorthNanoseconds = 8000;

  int threads() const { return threads_; }

  // Calls body(begin, end) on disjoint ranges that cover [0, n). The length of
  // each but the last is a multiple of `grain`. Runs inline if n <= grain.
  template <typename Body>
  void For(int64_t n, int64_t grain, const Body& body) {
    if (n <= grain || threads_ == 1) {
      if (n > 0) body(int64_t{0}, n);
      return;
    }
    Run(
        n, grain,
        [](const void* b, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(b))(begin, end);
        },
        &body);
  }

  // The same for n > 0 items that take about `each` nanoseconds each.
  template <typename Body>
  void ForItems(int64_t n, double each, const Body& body) {
    For(n,
        std::clamp(static_cast<int64_t>(kWorthNanoseconds / each), int64_t{1},
                   n),
        body);
  }

 private:
  using Thunk = void (*)(const void*, int64_t, int64_t);
  void Run(int64_t n, int64_t grain, Thunk thunk, const void* body);

  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_THREAD_POOL_H_
