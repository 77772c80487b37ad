// Calls of programs: values, order, failures, donation.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "jaxlib/ipu/runtime/pjrt/testing.h"
#include "jaxlib/ipu/runtime/support/host_allocator.h"

namespace ipu::testing {
namespace {

using Vector = std::vector<float>;

class ExecuteTest : public PjrtTest {
 protected:
  ExecuteTest() : PjrtTest(/*num_devices=*/2) {}

  // An increment that goes through the queue and waits for `gate` there.
  FakeProgram Gated(Event* gate) {
    FakeProgram program = Increment(4);
    program.info.estimated_seconds = kLong;
    program.run = [gate, run = program.run](auto arguments, auto results) {
      gate->Wait();
      return run(arguments, results);
    };
    return program;
  }

  FakeProgram Donating(FakeProgram program) {
    program.info.aliases = {{0, 0}};
    return program;
  }
};

TEST_F(ExecuteTest, ShortProgramsRunOnTheCallingThread) {
  std::thread::id thread;
  FakeProgram program = Increment(4);
  program.run = [&, run = program.run](auto arguments, auto results) {
    thread = std::this_thread::get_id();
    return run(arguments, results);
  };
  auto executable = Load(program);
  auto x = Put({1, 2, 3, 4});
  Outcome outcome = Execute(executable.get(), {x.get()});
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_TRUE(IsReady(outcome.results[0]->ready));
  EXPECT_EQ(Values(outcome.results[0].get()), (Vector{2, 3, 4, 5}));
}

TEST_F(ExecuteTest, MeasuredTimesCorrectTheEstimate) {
  std::thread::id thread;
  FakeProgram program = Increment(4);
  program.info.estimated_seconds = kLong;
  program.run = [&, run = program.run](auto arguments, auto results) {
    thread = std::this_thread::get_id();
    return run(arguments, results);
  };
  auto executable = Load(program);
  auto x = Put({1, 2, 3, 4});
  for (int i = 0; i < 100; ++i) {
    Values(Execute(executable.get(), {x.get()}).results[0].get());
    if (i == 0) {
      EXPECT_NE(thread, std::this_thread::get_id());
    }
    // The event is set before the queue becomes idle.
    while (!device()->queue.IsIdle()) std::this_thread::yield();
  }
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(ExecuteTest, LongProgramsAreQueuedAndLaterOnesStayInOrder) {
  Event gate;
  auto slow = Load(Gated(&gate));
  auto fast = Load(Increment(4));
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  Outcome second = Execute(fast.get(), {first.results[0].get()});
  EXPECT_FALSE(IsReady(first.results[0]->ready));
  EXPECT_FALSE(IsReady(second.results[0]->ready));
  gate.Set(Status());
  EXPECT_EQ(Values(second.results[0].get()), (Vector{3, 4, 5, 6}));
}

TEST_F(ExecuteTest, ResultsTakeNoMemoryBeforeTheProgramRuns) {
  Event gate, started;
  FakeProgram program = Gated(&gate);
  program.run = [&, run = program.run](auto arguments, auto results) {
    started.Set(Status());
    return run(arguments, results);
  };
  auto slow = Load(program);
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  started.Wait();
  // The result takes no host memory yet, but already counts in SRAM.
  const HostAllocator& host = HostAllocator::Global();
  const size_t before = host.live_bytes();
  const int64_t in_use = device()->sram.figures().in_use;
  Outcome second = Execute(slow.get(), {x.get()});
  EXPECT_EQ(host.live_bytes(), before);
  EXPECT_EQ(device()->sram.figures().in_use, in_use + 16);
  gate.Set(Status());
  Values(second.results[0].get());
  EXPECT_EQ(host.live_bytes(), before + 64);
  EXPECT_EQ(device()->sram.figures().in_use, in_use + 16);
}

TEST_F(ExecuteTest, FailuresPoisonResultsAndTheirDependents) {
  for (const double seconds : {0.0, kLong}) {
    FakeProgram bad = Increment(4);
    bad.info.estimated_seconds = seconds;
    bad.run = [](auto, auto) { return Internal("tile 3 is on fire"); };
    auto failing = Load(bad);
    auto good = Load(Increment(4));
    auto x = Put({1, 2, 3, 4});
    Outcome first = Execute(failing.get(), {x.get()});
    Outcome second = Execute(good.get(), {first.results[0].get()});
    EXPECT_EQ(first.error, "");
    EXPECT_EQ(Get(first.results[0].get()).second, "tile 3 is on fire");
    EXPECT_EQ(Get(second.results[0].get()).second, "tile 3 is on fire");
    EXPECT_EQ(Values(x.get()), (Vector{1, 2, 3, 4}));
  }
}

TEST_F(ExecuteTest, RefusesWrongArguments) {
  auto executable = Load(Increment(4));
  auto x = Put({1, 2, 3, 4}), small = Put({1}), far = Put({1, 2, 3, 4}, 1);
  EXPECT_NE(Execute(executable.get(), {}).error.find("takes 1"),
            std::string::npos);
  EXPECT_NE(Execute(executable.get(), {small.get()}).error.find("4 bytes"),
            std::string::npos);
  EXPECT_NE(Execute(executable.get(), {far.get()}).error.find("id=1"),
            std::string::npos);
  x->Delete();
  EXPECT_EQ(Execute(executable.get(), {x.get()}).error,
            DeletedError().message());
}

TEST_F(ExecuteTest, DonationReusesTheMemory) {
  auto executable = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  void* data = x->Data();
  const int64_t before = device()->sram.figures().in_use;
  Outcome outcome = Execute(executable.get(), {x.get()});
  EXPECT_TRUE(x->IsDeleted());
  EXPECT_EQ(outcome.results[0]->Data(), data);
  EXPECT_EQ(device()->sram.figures().in_use, before);
  EXPECT_EQ(Values(outcome.results[0].get()), (Vector{2, 3, 4, 5}));
  EXPECT_EQ(Execute(executable.get(), {x.get()}).error,
            DeletedError().message());
}

TEST_F(ExecuteTest, DonationOfAPendingArrayReusesItsMemoryToo) {
  Event gate;
  auto slow = Load(Gated(&gate));
  auto donating = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  Outcome second = Execute(donating.get(), {first.results[0].get()});
  EXPECT_TRUE(first.results[0]->IsDeleted());
  void* data = second.results[0]->Data();
  gate.Set(Status());
  EXPECT_EQ(Values(second.results[0].get()), (Vector{3, 4, 5, 6}));
  EXPECT_EQ(second.results[0]->Data(), data);
}

TEST_F(ExecuteTest, DonationDoesNotOverwriteReferencedMemory) {
  auto executable = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  x->IncreaseExternalReferences();
  auto* view = static_cast<const float*>(x->Data());
  Outcome outcome = Execute(executable.get(), {x.get()});
  EXPECT_NE(outcome.results[0]->Data(), view);
  EXPECT_EQ(view[0], 1);
  EXPECT_EQ(Values(outcome.results[0].get()), (Vector{2, 3, 4, 5}));
  EXPECT_TRUE(x->DecreaseExternalReferences());
  EXPECT_EQ(x->Data(), nullptr);
}

TEST_F(ExecuteTest, ADonatedArrayIsNotReadTwiceInOneCall) {
  FakeProgram program = Increment(4);
  program.info.arguments.push_back(Floats(4));
  program = Donating(program);
  auto executable = Load(program);
  auto x = Put({1, 2, 3, 4}), y = Put({0, 0, 0, 0});
  Outcome outcome = Execute(executable.get(), {x.get(), x.get()});
  EXPECT_NE(outcome.error.find("f(donate(a), a)"), std::string::npos);
  // Nothing was consumed, and the next call is not affected.
  EXPECT_FALSE(x->IsDeleted());
  EXPECT_EQ(Execute(executable.get(), {x.get(), y.get()}).error, "");
  EXPECT_TRUE(x->IsDeleted());
  EXPECT_FALSE(y->IsDeleted());
}

TEST_F(ExecuteTest, CallersMayExcludeArgumentsFromDonation) {
  auto executable = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  Outcome outcome = Execute(executable.get(), {x.get()}, /*keep=*/{0});
  EXPECT_FALSE(x->IsDeleted());
  EXPECT_EQ(Values(x.get()), (Vector{1, 2, 3, 4}));
  EXPECT_EQ(Values(outcome.results[0].get()), (Vector{2, 3, 4, 5}));
}

TEST_F(ExecuteTest, DonatedArgumentsWithoutAliasAreFreed) {
  FakeProgram program = Increment(4);
  program.info.donors = {0};
  auto executable = Load(program);
  auto x = Put({1, 2, 3, 4});
  Outcome outcome = Execute(executable.get(), {x.get()});
  EXPECT_TRUE(x->IsDeleted());
  EXPECT_EQ(device()->sram.figures().in_use, 16);
}

TEST_F(ExecuteTest, AReaderThatWaitsSeesTheValueBeforeDonation) {
  Event gate;
  auto slow = Load(Gated(&gate));
  auto donating = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  Vector read(4);
  PJRT_Buffer_ToHostBuffer_Args args = {};
  args.src = first.results[0].get();
  args.dst = read.data();
  args.dst_size = 16;
  Check(api_->PJRT_Buffer_ToHostBuffer(&args));
  Outcome second = Execute(donating.get(), {first.results[0].get()});
  gate.Set(Status());
  EXPECT_EQ(Values(second.results[0].get()), (Vector{3, 4, 5, 6}));
  args.event->event->Wait();
  delete args.event;
  EXPECT_EQ(read, (Vector{2, 3, 4, 5}));
}

TEST_F(ExecuteTest, CopiesBetweenDevicesPrecedeDonation) {
  Event gate;
  auto slow = Load(Gated(&gate));
  auto donating = Load(Donating(Increment(4)));
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  PJRT_Buffer_CopyToMemory_Args args = {};
  args.buffer = first.results[0].get();
  args.dst_memory = &device(1)->memory;
  Check(api_->PJRT_Buffer_CopyToMemory(&args));
  std::unique_ptr<PJRT_Buffer> copy(args.dst_buffer);
  Outcome second = Execute(donating.get(), {first.results[0].get()});
  gate.Set(Status());
  EXPECT_EQ(Values(second.results[0].get()), (Vector{3, 4, 5, 6}));
  EXPECT_EQ(Values(copy.get()), (Vector{2, 3, 4, 5}));
  EXPECT_EQ(copy->device, device(1));
}

TEST_F(ExecuteTest, SeveralThreadsShareADevice) {
  auto executable = Load(Increment(4));
  auto donating = Load(Donating(Increment(4)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto x = Put({0, 0, 0, 0});
      for (int i = 0; i < 500; ++i) {
        auto* step = i % 3 == 0 ? donating.get() : executable.get();
        Outcome outcome = Execute(step, {x.get()});
        ASSERT_EQ(outcome.error, "");
        x = std::move(outcome.results[0]);
      }
      EXPECT_EQ(Values(x.get()), (Vector{500, 500, 500, 500}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ExecuteTest, ClosingTheClientCancelsQueuedPrograms) {
  Event gate, started;
  FakeProgram program = Gated(&gate);
  program.run = [&, run = program.run](auto arguments, auto results) {
    started.Set(Status());
    return run(arguments, results);
  };
  auto slow = Load(program);
  auto x = Put({1, 2, 3, 4});
  Outcome first = Execute(slow.get(), {x.get()});
  Outcome second = Execute(slow.get(), {x.get()});
  const EventPtr running = first.results[0]->ready;
  const EventPtr waiting = second.results[0]->ready;
  // Like JAX, destroy the arrays and the program first.
  first.results.clear();
  second.results.clear();
  x.reset();
  slow.reset();
  started.Wait();
  waiting->OnReady([&](const Status&) { gate.Set(Status()); });
  client_.reset();
  EXPECT_TRUE(running->Wait().ok());
  EXPECT_EQ(waiting->Wait().code(), Code::kCancelled);
}

}  // namespace
}  // namespace ipu::testing
