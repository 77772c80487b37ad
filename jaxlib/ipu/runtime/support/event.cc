#include "jaxlib/ipu/runtime/support/event.h"

#include <utility>

namespace ipu {

bool Event::Set(Status status) {
  std::vector<Callback> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (IsReady()) return false;
    status_ = std::move(status);
    ready_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  if (callbacks.empty()) return true;
  // Copy the status: a callback may drop the last reference to this event.
  const Status outcome = status_;
  for (Callback& callback : callbacks) callback(outcome);
  return true;
}

void Event::OnReady(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (!IsReady()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(Status(status_));
}

const Status& Event::Wait() const {
  if (!IsReady()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return IsReady(); });
  }
  return status_;
}

}  // namespace ipu
