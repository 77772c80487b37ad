#include "jaxlib/ipu/runtime/support/work_queue.h"

#include <string>
#include <utility>

namespace ipu {
namespace {

Status Closed() { return Status(Code::kCancelled, "the client was closed"); }

}  // namespace

WorkQueue::~WorkQueue() {
  std::deque<std::unique_ptr<Task>> unstarted;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    unstarted.swap(tasks_);
  }
  filled_.notify_all();
  drained_.notify_all();
  // Cancel before joining: the running task may wait for one of these.
  for (auto& task : unstarted) task->Cancel(Closed());
  if (worker_) worker_->join();
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
  try {
    if (!worker_) {
      worker_ = std::make_unique<std::thread>([this] { Work(); });
    }
    tasks_.push_back(std::move(task));
  } catch (...) {
    return StatusOfException();
  }
  unfinished_.fetch_add(1);
  return Status();
}

void WorkQueue::WaitForRoom() {
  if (unfinished_.load() < capacity_) return;
  std::unique_lock lock(mutex_);
  drained_.wait(lock,
                [this] { return tasks_.size() < capacity_ || stopping_; });
}

void WorkQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
    if (stopping_) return;
    std::unique_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool has_room = tasks_.size() + 1 == capacity_;
    lock.unlock();
    if (has_room) drained_.notify_all();
    task->Run();
    task.reset();  // release its resources before the queue appears idle
    unfinished_.fetch_sub(1);
    lock.lock();
  }
}

}  // namespace ipu
