// Which devices wait for a function of the host that this thread runs.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_HOST_CALLS_H_

#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// Exists while this thread runs a program that may call the host. A device's
// queue waits for that long: what the host function asks of the device
// must not be put into it.
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

  // Whether `device` waits for what this thread does.
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
