// Calls of programs on several devices: all or none.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "jaxlib/ipu/runtime/pjrt/testing.h"

namespace ipu::testing {
namespace {

using Vector = std::vector<float>;
using Buffers = std::vector<std::unique_ptr<PJRT_Buffer>>;

// A place that threads leave when `count` of them have come.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  void Arrive() {
    std::unique_lock lock(mutex_);
    const int turn = came_ / count_;
    ++came_;
    all_.notify_all();
    all_.wait(lock, [&] { return came_ / count_ > turn; });
  }

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable all_;
  int came_ = 0;
};

class ExecuteGangTest : public PjrtTest {
 protected:
  ExecuteGangTest() : PjrtTest(/*num_devices=*/4) {}

  // An increment whose host functions on several devices wait for each other.
  FakeProgram Meeting(std::shared_ptr<Barrier> barrier) {
    FakeProgram program = Increment(4);
    program.info.calls_host = true;
    program.run = [barrier, run = program.run](auto arguments, auto results) {
      barrier->Arrive();
      return run(arguments, results);
    };
    return program;
  }

  FakeProgram Long() {
    FakeProgram program = Increment(4);
    program.info.estimated_seconds = kLong;
    return program;
  }

  std::vector<std::vector<PJRT_Buffer*>> Lists(const Buffers& buffers) {
    std::vector<std::vector<PJRT_Buffer*>> lists;
    for (const auto& buffer : buffers) lists.push_back({buffer.get()});
    return lists;
  }

  Buffers PutOn(const std::vector<int>& devices) {
    Buffers buffers;
    for (const int i : devices) {
      const float first = static_cast<float>(10 * i);
      buffers.push_back(Put({first, first, first, first}, i));
    }
    return buffers;
  }

  void ExpectIncremented(const std::vector<Outcome>& outcomes,
                         const std::vector<int>& devices) {
    for (size_t k = 0; k < devices.size(); ++k) {
      ASSERT_EQ(outcomes[k].error, "");
      PJRT_Buffer* result = outcomes[k].results[0].get();
      EXPECT_EQ(result->device, device(devices[k]));
      const float next = static_cast<float>(10 * devices[k] + 1);
      EXPECT_EQ(Values(result), (Vector{next, next, next, next}));
    }
  }
};

TEST_F(ExecuteGangTest, ShortGangsRunOnTheCallingThread) {
  std::vector<std::thread::id> threads;
  FakeProgram program = Increment(4);
  program.run = [&, run = program.run](auto arguments, auto results) {
    threads.push_back(std::this_thread::get_id());
    return run(arguments, results);
  };
  auto executable = LoadOn(program, {2, 0});
  const Buffers x = PutOn({2, 0});
  ExpectIncremented(ExecuteOn(executable.get(), Lists(x)), {2, 0});
  EXPECT_EQ(threads, std::vector(2, std::this_thread::get_id()));
}

TEST_F(ExecuteGangTest, LongGangsRunOnTheThreadOfOneOfTheirDevices) {
  std::vector<std::thread::id> threads;
  FakeProgram program = Long();
  program.run = [&, run = program.run](auto arguments, auto results) {
    threads.push_back(std::this_thread::get_id());
    return run(arguments, results);
  };
  auto executable = LoadOn(program, {2, 0});
  const Buffers x = PutOn({2, 0});
  ExpectIncremented(ExecuteOn(executable.get(), Lists(x)), {2, 0});
  EXPECT_EQ(threads[0], threads[1]);
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST_F(ExecuteGangTest, HostFunctionsRunAtOnceOnTheirDevices) {
  auto executable = LoadOn(Meeting(std::make_shared<Barrier>(3)), {3, 0, 1});
  const Buffers x = PutOn({3, 0, 1});
  ExpectIncremented(ExecuteOn(executable.get(), Lists(x)), {3, 0, 1});
}

TEST_F(ExecuteGangTest, GangsOfSeveralThreadsDoNotBlockEachOther) {
  std::mutex mutex;  // of the fixture's table of programs
  std::vector<std::thread> threads;
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{
           {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0}, {2, 1}}) {
    threads.emplace_back([&, devices] {
      std::unique_lock lock(mutex);
      auto barrier = std::make_shared<Barrier>(devices.size());
      const std::unique_ptr<PJRT_LoadedExecutable> executables[] = {
          LoadOn(Meeting(barrier), devices), LoadOn(Long(), devices),
          LoadOn(Increment(4), devices)};
      lock.unlock();
      const Buffers x = PutOn(devices);
      for (int i = 0; i < 300; ++i) {
        PJRT_LoadedExecutable* executable = executables[i % 3].get();
        ExpectIncremented(ExecuteOn(executable, Lists(x)), devices);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ExecuteGangTest, AnErrorOfOneIsThatOfAll) {
  for (const double seconds : {0.0, kLong}) {
    std::atomic<int> runs = 0;
    FakeProgram program = Increment(4);
    program.info.estimated_seconds = seconds;
    program.run = [&, run = program.run](auto arguments, auto results) {
      if (++runs == 2) return Internal("tile 3 is on fire");
      return run(arguments, results);
    };
    auto executable = LoadOn(program, {0, 1});
    const Buffers x = PutOn({0, 1});
    for (const Outcome& outcome : ExecuteOn(executable.get(), Lists(x))) {
      EXPECT_EQ(Get(outcome.results[0].get()).second, "tile 3 is on fire");
    }
  }
}

TEST_F(ExecuteGangTest, NothingIsConsumedUnlessAllCanRun) {
  FakeProgram program = Increment(4);
  program.info.aliases = {{0, 0}};
  auto executable = LoadOn(program, {0, 1});
  Buffers x = PutOn({0, 1});
  x[1]->Delete();
  auto outcomes = ExecuteOn(executable.get(), Lists(x));
  EXPECT_NE(outcomes[0].error.find("deleted"), std::string::npos);
  EXPECT_FALSE(x[0]->IsDeleted());

  FakeProgram bad = Increment(4);
  bad.run = [](auto, auto) { return Internal("broken"); };
  auto failing = Load(bad, 1);
  auto y = PutOn({1});
  Outcome poisoned = Execute(failing.get(), {y[0].get()});
  outcomes =
      ExecuteOn(executable.get(), {{x[0].get()}, {poisoned.results[0].get()}});
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(Get(outcomes[0].results[0].get()).second, "broken");
  EXPECT_FALSE(x[0]->IsDeleted());

  x[1] = std::move(PutOn({1})[0]);
  ExpectIncremented(ExecuteOn(executable.get(), Lists(x)), {0, 1});
  EXPECT_TRUE(x[0]->IsDeleted());
  EXPECT_TRUE(x[1]->IsDeleted());
}

TEST_F(ExecuteGangTest, ABufferDonatedTwiceOnAnyDeviceIsAnError) {
  FakeProgram program = Increment(4);
  program.info.arguments = {Floats(4), Floats(4)};
  program.info.donors = {0};
  auto executable = LoadOn(program, {0, 1});
  const Buffers x = PutOn({0, 1}), y = PutOn({0});
  const auto outcomes = ExecuteOn(
      executable.get(), {{x[0].get(), y[0].get()}, {x[1].get(), x[1].get()}});
  EXPECT_NE(outcomes[0].error.find("donate"), std::string::npos);
  EXPECT_FALSE(x[0]->IsDeleted());
}

TEST_F(ExecuteGangTest, SramIsCheckedOnAllDevices) {
  FakeProgram program = Increment(4);
  program.info.aliases = {{0, 0}};
  program.info.peak_tile_bytes = 600;
  auto executable = LoadOn(program, {0, 1});
  const Buffers x = PutOn({0, 1});
  const auto in_use = [this](int i) {
    return device(i)->sram.figures().in_use;
  };
  const int64_t before = in_use(0);
  std::unique_ptr<PJRT_Buffer> large = Put(Vector(500), 1);  // 500 a tile
  auto outcomes = ExecuteOn(executable.get(), Lists(x));
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(Get(outcome.results[0].get()).second.find("out of memory"),
              std::string::npos);
  }
  EXPECT_FALSE(x[0]->IsDeleted());
  outcomes.clear();
  EXPECT_EQ(in_use(0), before);
  large.reset();
  outcomes = ExecuteOn(executable.get(), Lists(x));
  ExpectIncremented(outcomes, {0, 1});
  EXPECT_EQ(in_use(0), before);
}

TEST_F(ExecuteGangTest, PendingArgumentsOfOneDeviceAreAwaited) {
  Event gate;
  FakeProgram slow = Increment(4);
  slow.info.estimated_seconds = kLong;
  slow.run = [&, run = slow.run](auto arguments, auto results) {
    gate.Wait();
    return run(arguments, results);
  };
  auto first = Load(slow, 1);
  auto executable = LoadOn(Increment(4), {0, 1});
  const Buffers x = PutOn({0, 1});
  Outcome late = Execute(first.get(), {x[1].get()});
  const auto outcomes =
      ExecuteOn(executable.get(), {{x[0].get()}, {late.results[0].get()}});
  EXPECT_FALSE(IsReady(outcomes[0].results[0]->ready));
  gate.Set(Status());
  EXPECT_EQ(Values(outcomes[0].results[0].get()), (Vector{1, 1, 1, 1}));
  EXPECT_EQ(Values(outcomes[1].results[0].get()), (Vector{12, 12, 12, 12}));
}

TEST_F(ExecuteGangTest, AHostFunctionMayCallItsGangsDevices) {
  auto inner = LoadOn(Increment(4), {0, 1});
  const Buffers x = PutOn({0, 1});
  FakeProgram program = Increment(4);
  program.info.calls_host = true;
  program.run = [&, run = program.run](auto arguments, auto results) {
    ExpectIncremented(ExecuteOn(inner.get(), Lists(x)), {0, 1});
    return run(arguments, results);
  };
  auto executable = LoadOn(program, {0, 1});
  ExpectIncremented(ExecuteOn(executable.get(), Lists(x)), {0, 1});
}

TEST_F(ExecuteGangTest, CallsForOtherDevicesAreErrors) {
  auto executable = LoadOn(Increment(4), {0, 1});
  const Buffers x = PutOn({0, 1, 2});
  EXPECT_NE(ExecuteOn(executable.get(), {{x[0].get()}})[0].error.find(
                "2 IPUs together; the call names 1"),
            std::string::npos);
  EXPECT_NE(
      ExecuteOn(executable.get(), {{x[1].get()}, {x[0].get()}})[0].error.find(
          "is on IpuDevice(id=1"),
      std::string::npos);
}

}  // namespace
}  // namespace ipu::testing
