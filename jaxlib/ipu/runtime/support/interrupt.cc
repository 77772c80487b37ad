#include "jaxlib/ipu/runtime/support/interrupt.h"

#include <signal.h>

#include <atomic>
#include <mutex>

namespace ipu {
namespace {

std::atomic<uint32_t> signals{0};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

std::mutex& Mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

int watches = 0;         // guarded by Mutex()
bool installed = false;  // likewise
// The replaced handler. Written only while ours is not installed.
struct sigaction replaced;

void Count(int number, siginfo_t* info, void* context) {
  signals.fetch_add(1);
  if (replaced.sa_flags & SA_SIGINFO) {
    replaced.sa_sigaction(number, info, context);
  } else {
    replaced.sa_handler(number);
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == Count;
}

void Install() {
  struct sigaction now;
  // Ours may still be there, behind one that has been removed since.
  if (sigaction(SIGINT, nullptr, &now) != 0 || IsOurs(now)) return;
  if (!(now.sa_flags & SA_SIGINFO) &&
      (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) {
    return;
  }
  replaced = now;
  struct sigaction ours = now;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = Count;
  installed = sigaction(SIGINT, &ours, nullptr) == 0;
}

// Leaves a handler alone that was installed since.
void Restore() {
  struct sigaction now;
  if (sigaction(SIGINT, nullptr, &now) == 0 && IsOurs(now)) {
    sigaction(SIGINT, &replaced, nullptr);
    installed = false;
  }
}

}  // namespace

InterruptWatch::InterruptWatch() : before_(signals.load()) {
  const std::lock_guard lock(Mutex());
  // If a handler that was installed over ours passes signals on to ours, the
  // replaced one must stay as it is.
  if (watches++ == 0 && !installed) Install();
}

InterruptWatch::~InterruptWatch() {
  const std::lock_guard lock(Mutex());
  if (--watches == 0 && installed) Restore();
}

bool InterruptWatch::Interrupted() const { return signals.load() != before_; }

}  // namespace ipu
