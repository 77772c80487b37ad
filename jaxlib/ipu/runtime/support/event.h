// A one-shot completion event that carries a Status.
//
// It is set by the thread that does the work and may be watched from any
// thread. Callbacks run outside the lock, on the thread that calls Set (or
// immediately if the event is already ready), because they may destroy the
// event or anything else.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_EVENT_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_EVENT_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

class Event {
 public:
  using Callback = std::function<void(const Status&)>;

  Event() = default;
  // An event that is already ready.
  explicit Event(Status status) : ready_(true), status_(std::move(status)) {}

  bool IsReady() const { return ready_.load(std::memory_order_acquire); }

  // The outcome. Requires IsReady().
  const Status& status() const { return status_; }

  // Only the first call has an effect; later ones return false.
  bool Set(Status status);

  void OnReady(Callback callback);

  // Blocks. The caller must not hold a lock that the work may need.
  const Status& Wait() const;

  // Set before anything else sees the event: work of another device than that
  // of the array whose event this is sets it.
  bool elsewhere = false;

 private:
  std::atomic<bool> ready_{false};
  Status status_;  // written before ready_, constant afterwards
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Callback> callbacks_;
};

// Null means "ready, without error", the state of most buffers.
using EventPtr = std::shared_ptr<Event>;

inline bool IsReady(const EventPtr& event) {
  return event == nullptr || event->IsReady();
}
inline Status StatusOfReady(const EventPtr& event) {
  return event == nullptr ? Status() : event->status();
}

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_EVENT_H_
