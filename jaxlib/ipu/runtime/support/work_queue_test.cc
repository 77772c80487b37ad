#include "jaxlib/ipu/runtime/support/work_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "jaxlib/ipu/runtime/support/event.h"

namespace ipu {
namespace {

class FunctionTask : public Task {
 public:
  FunctionTask(std::function<void()> run, std::function<void()> cancel)
      : run_(std::move(run)), cancel_(std::move(cancel)) {}
  void Run() override { run_(); }
  void Cancel(const Status& why) override {
    EXPECT_EQ(why.code(), Code::kCancelled);
    cancel_();
  }

 private:
  std::function<void()> run_;
  std::function<void()> cancel_;
};

std::unique_ptr<Task> MakeTask(
    std::function<void()> run, std::function<void()> cancel = [] {}) {
  return std::make_unique<FunctionTask>(std::move(run), std::move(cancel));
}

TEST(WorkQueueTest, RunsInOrderOnOneOtherThread) {
  std::string order;
  std::thread::id worker;
  Event done;
  WorkQueue queue(4);
  EXPECT_TRUE(queue.IsIdle());
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    queue.Push(MakeTask([&order, letter] { order += letter; }));
  }
  queue.Push(MakeTask([&] {
    worker = std::this_thread::get_id();
    done.Set(Status());
  }));
  done.Wait();
  EXPECT_EQ(order, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(WorkQueueTest, IsBusyUntilTheTaskIsDestroyed) {
  Event started, release, gone;
  WorkQueue queue(4);
  std::shared_ptr<Event> witness(&gone, [](Event* e) { e->Set(Status()); });
  queue.Push(MakeTask([&, witness = std::move(witness)] {
    started.Set(Status());
    release.Wait();
  }));
  started.Wait();
  EXPECT_FALSE(queue.IsIdle());
  EXPECT_FALSE(gone.IsReady());
  release.Set(Status());
  while (!queue.IsIdle()) std::this_thread::yield();
  EXPECT_TRUE(gone.IsReady());
}

class WaitingTask : public FunctionTask {
 public:
  using FunctionTask::FunctionTask;
  bool MayWait() const override { return true; }
};

TEST(WorkQueueTest, GoesOnBehindATaskThatWaits) {
  Event release, last;
  std::string order;
  WorkQueue queue(1);
  queue.Push(std::make_unique<WaitingTask>(
      [&] {
        release.Wait();
        order += 'c';
      },
      [] {}));
  EXPECT_TRUE(queue.MayReorder());
  queue.WaitForRoom();
  queue.Push(MakeTask([&] { order += 'a'; }));
  queue.WaitForRoom();  // does not wait for the first task to end
  queue.Push(MakeTask([&] {
    order += 'b';
    release.Set(Status());
  }));
  release.Wait();
  while (!queue.IsIdle()) std::this_thread::yield();
  EXPECT_EQ(order, "abc");
  EXPECT_FALSE(queue.MayReorder());
}

TEST(WorkQueueTest, GoesOnBehindManyTasksThatWait) {
  // Whoever watches the tasks of one round still does in the next, and those
  // that were late go on to watch others.
  WorkQueue queue(100);
  for (int round = 0; round < 3; ++round) {
    Event early, release;
    const auto wait = [&](Event& event) {
      queue.Push(std::make_unique<WaitingTask>([&] { event.Wait(); }, [] {}));
    };
    wait(early);
    queue.Push(MakeTask([] {}));
    early.Set(Status());
    for (int i = 0; i < 3; ++i) wait(release);
    queue.Push(MakeTask([&] { release.Set(Status()); }));
    release.Wait();
    while (!queue.IsIdle()) std::this_thread::yield();
  }
}

TEST(WorkQueueTest, DestructionCancelsQueuedTasks) {
  Event started, release;
  bool ran = false, cancelled = false;
  auto queue = std::make_unique<WorkQueue>(4);
  queue->Push(MakeTask([&] {
    started.Set(Status());
    release.Wait();
  }));
  // The second task's cancellation releases the first, which also shows that
  // the destructor cancels before it waits.
  queue->Push(MakeTask([&] { ran = true; },
                       [&] {
                         cancelled = true;
                         release.Set(Status());
                       }));
  started.Wait();
  queue.reset();
  EXPECT_TRUE(cancelled);
  EXPECT_FALSE(ran);
}

TEST(WorkQueueTest, ThereIsRoomOnceATaskHasStarted) {
  Event release, has_room;
  WorkQueue queue(1);
  Event started;
  queue.Push(MakeTask([&] {
    started.Set(Status());
    release.Wait();
  }));
  started.Wait();
  queue.Push(MakeTask([] {}));  // fills the queue
  std::thread third([&] {
    queue.WaitForRoom();
    has_room.Set(Status());
  });
  EXPECT_FALSE(has_room.IsReady());
  queue.Push(MakeTask([] {}));  // does not wait for room
  release.Set(Status());
  third.join();
  EXPECT_TRUE(has_room.IsReady());
}

}  // namespace
}  // namespace ipu
