// Guards calls from the library's threads into Python, which may shut down.
//
// Python terminates a thread that returns to a finalised interpreter by
// unwinding it, which fails in C++ frames, so that the process aborts. Closing
// a gate therefore waits until all threads have left it.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_GATE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_GATE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {

// `Function` is the function pointer that the gate guards; null while it is
// closed. A gate should never be destroyed, because worker threads may outlive
// static objects.
template <typename Function>
class Gate {
 public:
  // Returns null if the gate is closed; otherwise the caller must call Leave().
  Function Enter() {
    std::lock_guard lock(mutex_);
    if (function_ != nullptr) ++inside_;
    return function_;
  }

  void Leave() {
    {
      std::lock_guard lock(mutex_);
      --inside_;
    }
    left_.notify_all();
  }

  // Null closes the gate and waits until it is empty. Does nothing in a forked
  // child: the threads that were inside do not exist there and never leave.
  void Set(Function function) {
    if (!CheckNotForked(fork_generation_).ok()) return;
    std::unique_lock lock(mutex_);
    function_ = function;
    if (function == nullptr) left_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  const uint32_t fork_generation_ = ForkGeneration();
  std::mutex mutex_;
  std::condition_variable left_;
  Function function_ = nullptr;
  int inside_ = 0;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_GATE_H_
