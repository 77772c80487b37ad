// Tells waiting threads of Ctrl-C.
//
// Python's own handler only notes the signal; its exception is raised on the
// main thread once that runs Python again, which it does not while it waits for
// a program.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_INTERRUPT_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_INTERRUPT_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// While at least one of these exists, a handler of SIGINT counts the signals
// and passes them on to the handler that it replaced. Nothing is replaced where
// the signal is ignored or ends the process.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether there was a signal since this object was made.
  bool Interrupted() const;

 private:
  uint32_t before_;
};

// What a run on several devices ends with after Ctrl-C.
inline Status Interrupted() {
  return Status(Code::kCancelled,
                "Ctrl-C while devices ran a program together");
}

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_INTERRUPT_H_
