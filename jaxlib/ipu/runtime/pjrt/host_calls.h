// Tracks, per thread, the devices that wait for a host function to return.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_

#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// Lives while this thread runs a program that may call host functions. The
// device's queue is blocked for that long, so work that the host function
// submits to the device must run at once instead of being queued.
class HostCalls {
 public:
  explicit HostCalls(const Executable& executable)
      : device_(executable.info().calls_host ? executable.device() : nullptr),
        outer_(innermost_) {
    innermost_ = this;
  }
  ~HostCalls() { innermost_ = outer_; }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Whether this thread runs a host function.
  static bool Any() { return innermost_ != nullptr; }

  // Whether `device` waits for the work of this thread.
  static bool WaitFor(const PJRT_Device* device) {
    for (const HostCalls* c = innermost_; c != nullptr; c = c->outer_) {
      if (c->device_ == device) return true;
    }
    return false;
  }

 private:
  static inline thread_local const HostCalls* innermost_ = nullptr;

  const PJRT_Device* const device_;
  const HostCalls* const outer_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_
