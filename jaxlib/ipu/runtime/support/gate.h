// The way from the library's threads into Python, which may close.
//
// A thread that comes back to an interpreter that is gone is ended by Python,
// through C++ frames that cannot be unwound: the process aborts. So whoever
// closes a gate waits until everybody has come out.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_GATE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_GATE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {

// `Function`: a pointer to what is behind the gate, null while it is closed.
// Should never be destroyed: worker threads may outlive static objects.
template <typename Function>
class Gate {
 public:
  // Null: closed. Otherwise the caller owes a Leave().
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

  // Null closes it, and waits. Does nothing in a forked child: the threads that
  // were inside are not there, and never leave.
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
