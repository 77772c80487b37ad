#include "jaxlib/ipu/runtime/support/work_queue.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ipu {
namespace {

Status Closed() { return Status(Code::kCancelled, "the client was closed"); }

}  // namespace

WorkQueue::~WorkQueue() {
  Tasks unstarted;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    unstarted.swap(tasks_);
  }
  filled_.notify_all();
  late_.notify_all();
  drained_.notify_all();
  // Cancel before joining: the running task may wait for one of these.
  for (auto& task : unstarted) task->Cancel(Closed());
  for (std::thread& worker : workers_) worker.join();
}

void WorkQueue::Push(std::unique_ptr<Task> task) {
  Status added;
  {
    std::lock_guard lock(mutex_);
    added = stopping_ ? Closed() : Add(task);
  }
  if (added.ok()) {
    filled_.notify_one();
  } else {
    task->Cancel(added);
  }
}

// Leaves `task` unchanged on failure.
Status WorkQueue::Add(std::unique_ptr<Task>& task) {
  const bool may_wait = task->MayWait();
  try {
    if (workers_.empty()) StartWorker();
    tasks_.push_back(std::move(task));
  } catch (...) {
    return StatusOfException();
  }
  unfinished_.fetch_add(1);
  may_wait_.fetch_add(may_wait);
  WatchTasks();
  return Status();
}

// Requires the lock, without which a new worker does nothing and the destructor
// joins none.
void WorkQueue::StartWorker() {
  running_.reserve(workers_.size() + 1);
  workers_.emplace_back([this, first = workers_.empty()] { Work(first); });
  ++idle_;
}

bool WorkQueue::AllMayWait() const {
  return std::all_of(running_.begin(), running_.end(),
                     [](const Running* r) { return r->may_wait; });
}

bool WorkQueue::AllLate() const {
  const Clock::time_point now = Clock::now();
  return std::all_of(running_.begin(), running_.end(), [now](const Running* r) {
    return r->may_wait && r->late <= now;
  });
}

// The task that the first, or another, worker is to start now, or the end.
// Others only help the first one when it is late, so that host functions
// usually run on the same thread.
WorkQueue::Tasks::iterator WorkQueue::Next(bool first) {
  if (running_.empty()) return first ? tasks_.begin() : tasks_.end();
  if (tasks_.empty() || !AllLate()) return tasks_.end();
  bool overtakes = false;  // an earlier task that keeps its order
  return std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    const bool starts = task->IsReady() && !(overtakes && task->KeepsOrder());
    overtakes = overtakes || task->KeepsOrder();
    return starts;
  });
}

// Waits for `done`, which time alone may bring about.
template <typename Done>
void WorkQueue::WaitUntil(std::condition_variable& changed,
                          std::unique_lock<std::mutex>& lock, Done done) {
  while (!stopping_ && !done()) {
    if (running_.empty() || tasks_.empty() || !AllMayWait()) {
      changed.wait(lock);
      continue;
    }
    Clock::time_point until = Clock::now() + kPollInterval;
    for (const Running* r : running_) until = std::max(until, r->late);
    const bool watches = &changed != &drained_;
    watching_ += watches;
    changed.wait_until(lock, until);
    watching_ -= watches;
  }
}

void WorkQueue::WaitForRoom() {
  if (unfinished_.load() < capacity_) return;
  std::unique_lock lock(mutex_);
  WaitUntil(drained_, lock, [this] {
    return tasks_.size() < capacity_ || (!running_.empty() && AllLate());
  });
}

void WorkQueue::Work(bool first) {
  std::unique_lock lock(mutex_);
  while (true) {
    Tasks::iterator next;
    WaitUntil(first ? filled_ : late_, lock, [&] {
      next = Next(first);
      return next != tasks_.end();
    });
    if (stopping_) return;
    --idle_;
    std::unique_ptr<Task> task = std::move(*next);
    tasks_.erase(next);
    RunTask(std::move(task), lock);
    ++idle_;
  }
}

void WorkQueue::RunTask(std::unique_ptr<Task> task,
                        std::unique_lock<std::mutex>& lock) {
  const Running running{task->MayWait(), Clock::now() + kPatience};
  running_.push_back(&running);
  WatchTasks();
  const bool has_room = tasks_.size() + 1 == capacity_;
  lock.unlock();
  if (has_room || running.may_wait) drained_.notify_all();
  task->Run();
  task.reset();  // release its resources before the queue appears idle
  may_wait_.fetch_sub(running.may_wait);
  unfinished_.fetch_sub(1);
  lock.lock();
  std::erase(running_, &running);
  if (running_.empty()) {
    filled_.notify_one();  // the first worker, if this is another one
  } else {
    drained_.notify_all();  // the rest may be late
  }
}

// Makes sure that a worker waits for the running tasks to be late, if they may
// wait and others could then start. One that does so for earlier tasks will
// look at these, too: most programs are over long before, so that no thread is
// woken for them. If the system refuses a thread, all tasks run in order.
void WorkQueue::WatchTasks() {
  if (running_.empty() || tasks_.empty() || !AllMayWait()) return;
  if (watching_ > 0) return;
  if (idle_ > 0) {
    filled_.notify_one();
    late_.notify_one();
    return;
  }
  (void)Caught([this] {
    StartWorker();
    return Status();
  });
}

}  // namespace ipu
