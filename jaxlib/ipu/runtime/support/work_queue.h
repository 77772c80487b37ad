// A first-in-first-out task queue with one worker thread: a device's stream.
//
// The queue itself never calls Python. The worker starts with the first task,
// so that an unused client costs no thread. When the queue is destroyed, it
// waits for the running task and cancels all that were not started.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

class Task {
 public:
  virtual ~Task() = default;
  // Exactly one of these is called, once.
  virtual void Run() = 0;
  virtual void Cancel(const Status& why) = 0;
};

class WorkQueue {
 public:
  explicit WorkQueue(size_t capacity) : capacity_(capacity) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Never blocks, so it may be called under a lock. Cancels the task if there
  // is no memory or thread for it.
  void Push(std::unique_ptr<Task> task);

  // Blocks while `capacity` tasks are waiting, so that a caller that only
  // dispatches cannot accumulate memory without bound. Call before Push,
  // without holding any lock that a task may need.
  void WaitForRoom();

  // Whether no task waits or runs. Remains true while the caller prevents
  // others from pushing.
  bool IsIdle() const { return unfinished_.load() == 0; }

 private:
  void Work();
  Status Add(std::unique_ptr<Task>& task);

  const size_t capacity_;
  std::atomic<size_t> unfinished_{0};  // waiting or running
  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable drained_;
  std::deque<std::unique_ptr<Task>> tasks_;
  bool stopping_ = false;
  std::unique_ptr<std::thread> worker_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_
