// One first-in-first-out queue with one worker thread: a device's stream.
//
// What goes in: tasks. What never happens here: Python. The worker starts with
// the first task, so that a client nobody uses costs no thread. Tasks that were
// not started when the queue is destroyed are cancelled, the running one is
// waited for.

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
  // Exactly one of the two is called, once.
  virtual void Run() = 0;
  virtual void Cancel(const Status& why) = 0;
};

class WorkQueue {
 public:
  explicit WorkQueue(size_t capacity) : capacity_(capacity) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Never blocks, so that it may be called under a lock. Cancels the task if
  // there is no memory or no thread for it.
  void Push(std::unique_ptr<Task> task);

  // Blocks while `capacity` tasks wait: who only dispatches cannot pile up
  // memory without bound. To be called before Push, without any lock that a
  // task may need.
  void WaitForRoom();

  // Nothing waits and nothing runs. Stays true while the caller keeps others
  // from pushing.
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
