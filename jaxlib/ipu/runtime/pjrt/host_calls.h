// Tracks the devices that wait for the host function on whose behalf a thread
// works.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// The devices whose queues are blocked by a program that may call host
// functions: those of a gang wait for each other.
struct HostCall {
  std::vector<PJRT_Device*> devices;
  std::shared_ptr<const HostCall> submitter;  // of the program; null: none
  std::atomic<bool> runs{true};               // the program
};

// Null outside host functions.
using HostCallPtr = std::shared_ptr<const HostCall>;

// Lives while this thread runs a program that may call host functions. The
// device's queue is blocked for that long, so work that the host function
// submits to the device must run at once instead of being queued. The same is
// true of the other devices of a gang, and of the host functions of programs
// that it submits to other devices, for which it may wait: a call takes its
// submitter with it from queue to queue.
class HostCalls {
 public:
  HostCalls(const Executable& executable, HostCallPtr submitter) {
    if (!executable.info().calls_host) return;
    call_ =
        std::make_shared<HostCall>(executable.devices(), std::move(submitter));
    outer_ = std::exchange(current_, call_);
  }
  ~HostCalls() {
    if (call_ == nullptr) return;
    call_->runs = false;
    current_ = std::move(outer_);
  }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // The innermost call on this thread.
  static const HostCallPtr& Current() { return current_; }

  // Whether `device` waits for the work of this thread.
  static bool WaitFor(const PJRT_Device* device) {
    for (const HostCall* c = current_.get(); c != nullptr;
         c = c->submitter.get()) {
      if (c->runs && std::find(c->devices.begin(), c->devices.end(), device) !=
                         c->devices.end()) {
        return true;
      }
    }
    return false;
  }

 private:
  static inline thread_local HostCallPtr current_;

  std::shared_ptr<HostCall> call_;
  HostCallPtr outer_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_
