// A first-in-first-out task queue that runs one task at a time: a device's
// stream.
//
// There is one exception. A task that waits for a host function may, through
// other threads and devices, wait for work that is queued behind it. If it has
// run for longer than kPatience, the queue therefore goes on with the first
// task whose inputs are ready, on another thread. Tasks may be overtaken only
// by tasks that were pushed while MayReorder(), so only these have to be
// independent of everything before them but their inputs. Tasks that wait for
// tasks of other queues keep their order among each other, which is the same in
// all queues.
//
// The queue itself never calls Python. A worker starts with the first task, so
// that an unused client costs no thread. When the queue is destroyed, it waits
// for the running tasks and cancels all that were not started.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

class Task {
 public:
  virtual ~Task() = default;
  // Exactly one of these is called, once.
  virtual void Run() = 0;
  virtual void Cancel(const Status& why) = 0;
  // Whether Run may wait for a host function or another queue. Constant.
  virtual bool MayWait() const { return false; }
  // Whether Run can start without waiting for another task.
  virtual bool IsReady() const { return true; }
  // Whether the task overtakes no other of this kind. Constant.
  virtual bool KeepsOrder() const { return false; }
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
  // dispatches cannot accumulate memory without bound. Does not block while a
  // task that may wait for this caller takes long. Call before Push, without
  // holding any lock that a task may need.
  void WaitForRoom();

  // Whether no task waits or runs. Remains true while the caller prevents
  // others from pushing.
  bool IsIdle() const { return unfinished_.load() == 0; }

  // Whether a task pushed now may run before tasks pushed earlier, because one
  // of them may wait.
  bool MayReorder() const { return may_wait_.load() != 0; }

  // Lives while work runs beside the queue, which is as if a task that may wait
  // were in it.
  class Beside {
   public:
    explicit Beside(WorkQueue& queue) : queue_(queue) { ++queue_.may_wait_; }
    ~Beside() { --queue_.may_wait_; }
    Beside(const Beside&) = delete;
    Beside& operator=(const Beside&) = delete;

   private:
    WorkQueue& queue_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  using Tasks = std::deque<std::unique_ptr<Task>>;

  // Most host functions return sooner, and then everything runs in order.
  static constexpr auto kPatience = std::chrono::milliseconds(100);
  // How often a task that has become ready is looked for after that.
  static constexpr auto kPollInterval = std::chrono::milliseconds(5);

  struct Running {
    bool may_wait;
    Clock::time_point late;  // when other tasks may run if it `may_wait`
  };

  void Work(bool first);
  Status Add(std::unique_ptr<Task>& task);
  void StartWorker();
  bool AllMayWait() const;
  bool AllLate() const;
  Tasks::iterator Next(bool first);
  template <typename Done>
  void WaitUntil(std::condition_variable& changed,
                 std::unique_lock<std::mutex>& lock, Done done);
  void RunTask(std::unique_ptr<Task> task, std::unique_lock<std::mutex>& lock);
  void WatchTasks();

  const size_t capacity_;
  std::atomic<size_t> unfinished_{0};  // waiting or running
  std::atomic<size_t> may_wait_{0};    // those of them that MayWait()
  std::mutex mutex_;
  std::condition_variable filled_;  // for the first worker
  std::condition_variable late_;    // for the others
  std::condition_variable drained_;
  Tasks tasks_;
  std::vector<const Running*> running_;  // has room for one per worker
  size_t idle_ = 0;                      // workers without a task
  size_t watching_ = 0;                  // those that wait for a time
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_WORK_QUEUE_H_
