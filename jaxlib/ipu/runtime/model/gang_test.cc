// Programs on several devices: collectives, and what happens if they fail or do
// not match.

#include <bit>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu {
namespace {

using namespace program;  // NOLINT

using Vector = std::vector<int32_t>;
using All = std::vector<Vector>;

Step Across(CollectiveKind kind, uint32_t operand, uint32_t result,
            std::vector<Group> groups, std::vector<int32_t> sources = {}) {
  const bool reduces = kind == CollectiveKind::kAllReduce ||
                       kind == CollectiveKind::kReduceScatter;
  return {Collective{static_cast<uint8_t>(kind),
                     uint8_t{reduces},
                     {operand},
                     {result},
                     std::move(groups),
                     std::move(sources),
                     Builder::cost,
                     0}};
}

// What was sent and not yet received, and the processes that have failed.
struct Mail {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, std::string>,
           std::pair<std::string, std::string>>
      messages;  // by sender, receiver and tag
  std::map<int, Status> failed;
};

// A run as process 0 or 1 sees it; odd partitions are process 1's.
class MailRun : public ProcessRun {
 public:
  MailRun(std::shared_ptr<Mail> mail, int process,
          std::chrono::milliseconds timeout)
      : mail_(std::move(mail)), process_(process), timeout_(timeout) {}

  int ProcessOf(uint32_t partition) const override {
    return static_cast<int>(partition % 2);
  }
  int process() const override { return process_; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  Status Send(std::span<const int> processes, std::string_view tag,
              std::string_view what, std::span<const char> data) override {
    std::lock_guard lock(mail_->mutex);
    for (const int to : processes) {
      mail_->messages[{process_, to, std::string(tag)}] = {
          std::string(what), std::string(data.begin(), data.end())};
    }
    mail_->changed.notify_all();
    return Status();
  }

  StatusOr<std::unique_ptr<Message>> Receive(
      int process, std::string_view tag,
      std::chrono::milliseconds patience) override {
    std::unique_lock lock(mail_->mutex);
    const std::tuple key{process, process_, std::string(tag)};
    mail_->changed.wait_for(lock, patience, [&] {
      return mail_->messages.contains(key) || mail_->failed.contains(process);
    });
    const auto found = mail_->messages.find(key);
    if (found == mail_->messages.end()) {
      const auto failed = mail_->failed.find(process);
      if (failed != mail_->failed.end()) return failed->second;
      return std::unique_ptr<Message>();
    }
    const auto& [what, data] = found->second;
    auto message = std::make_unique<Message>(
        Message{what, AlignedBytes::Allocate(data.size())});
    std::memcpy(message->data.data(), data.data(), data.size());
    mail_->messages.erase(found);
    return message;
  }

  void Fail(const Status& status) override {
    std::lock_guard lock(mail_->mutex);
    mail_->failed.emplace(process_, status);
    mail_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Mail> mail_;
  const int process_;
  const std::chrono::milliseconds timeout_;
};

enum class Way { kInTurn, kOnThreads, kInProcesses };

struct Ran {
  std::vector<Vector> results;
  Status status;
};

// Runs the partitions in two processes, one of which may not run at all.
Status RunInProcesses(LoadedProgram& program,
                      const std::vector<int64_t>& devices,
                      const std::vector<Share>& shares, int processes) {
  const auto mail = std::make_shared<Mail>();
  std::vector<Status> ends(processes);
  std::vector<std::thread> workers;
  for (int process = 0; process < processes; ++process) {
    workers.emplace_back([&, process] {
      const std::chrono::milliseconds timeout(processes == 1 ? 50 : 60'000);
      auto run = std::make_shared<MailRun>(mail, process, timeout);
      std::vector<Share> own;
      for (size_t i = process; i < shares.size(); i += 2) {
        own.push_back(shares[i]);
      }
      ends[process] = program.MakeGang(devices, run)->RunAll(own);
      // A process that has ended answers no longer.
      run->Fail(Internal("process " + std::to_string(process) + " has ended"));
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const Status& end : ends) IPU_RETURN_IF_ERROR(end);
  return Status();
}

// Runs a program of one argument and one result.
Ran RunOn(const Builder& b, std::vector<Vector> arguments, size_t size, Way way,
          int processes = 2) {
  static Engine* engine = MakeModelEngine(2).release();
  auto program =
      engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
  EXPECT_TRUE(program.ok()) << program.status().message();
  const size_t count = arguments.size();
  Ran ran{std::vector<Vector>(count, Vector(size)), {}};
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<Share> shares;
  std::vector<int64_t> devices;
  for (size_t i = 0; i < count; ++i) {
    ins.push_back(arguments[i].data());
    outs.push_back(ran.results[i].data());
    devices.push_back(static_cast<int64_t>(10 + i));
  }
  for (size_t i = 0; i < count; ++i) {
    shares.push_back({{&ins[i], 1}, {&outs[i], 1}, nullptr});
  }
  if (way == Way::kInProcesses) {
    ran.status = RunInProcesses(**program, devices, shares, processes);
    return ran;
  }
  const auto gang = (*program)->MakeGang(devices, nullptr);
  if (way == Way::kInTurn) {
    ran.status = gang->RunAll(shares);
    return ran;
  }
  std::vector<Status> ends(count);
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < count; ++i) {
    workers.emplace_back([&, i] { ends[i] = gang->Run(i, shares[i]); });
  }
  for (std::thread& worker : workers) worker.join();
  for (const Status& end : ends) {
    if (ran.status.ok()) ran.status = end;
  }
  return ran;
}

class GangTest : public testing::TestWithParam<Way> {
 protected:
  // The result of each of four devices, of which device i has i, i + 10, ...
  std::vector<Vector> Results(CollectiveKind kind, size_t from, size_t to,
                              std::vector<Group> groups,
                              std::vector<int32_t> sources = {}) {
    Builder b;
    const uint32_t x = b.Argument(DType::kI32, {static_cast<int64_t>(from)});
    const uint32_t y = b.Result(DType::kI32, {static_cast<int64_t>(to)});
    b.program.num_partitions = 4;
    b.program.steps = {Across(kind, x, y, std::move(groups), sources)};
    std::vector<Vector> arguments;
    for (int32_t i = 0; i < 4; ++i) {
      Vector& own = arguments.emplace_back(from);
      for (size_t k = 0; k < from; ++k) {
        own[k] = i + 10 * static_cast<int32_t>(k);
      }
    }
    const Ran ran = RunOn(b, arguments, to, GetParam());
    EXPECT_TRUE(ran.status.ok()) << ran.status.message();
    return ran.results;
  }
};

TEST_P(GangTest, AllReduce) {
  EXPECT_EQ(Results(CollectiveKind::kAllReduce, 2, 2, {{{0, 1, 2, 3}}}),
            (All(4, {6, 46})));
  EXPECT_EQ(Results(CollectiveKind::kAllReduce, 1, 1, {{{0, 3, 2}}, {{1}}}),
            (All{{5}, {1}, {5}, {5}}));
}

TEST_P(GangTest, AllGatherKeepsTheOrderOfTheGroup) {
  EXPECT_EQ(
      Results(CollectiveKind::kAllGather, 2, 4, {{{3, 0}}, {{1, 2}}}),
      (All{{3, 13, 0, 10}, {1, 11, 2, 12}, {1, 11, 2, 12}, {3, 13, 0, 10}}));
}

TEST_P(GangTest, ReduceScatter) {
  EXPECT_EQ(Results(CollectiveKind::kReduceScatter, 4, 2, {{{3, 0}}, {{1, 2}}}),
            (All{{43, 63}, {3, 23}, {43, 63}, {3, 23}}));
}

TEST_P(GangTest, AllToAll) {
  EXPECT_EQ(
      Results(CollectiveKind::kAllToAll, 4, 4, {{{0, 1, 2, 3}}}),
      (All{
          {0, 1, 2, 3}, {10, 11, 12, 13}, {20, 21, 22, 23}, {30, 31, 32, 33}}));
}

TEST_P(GangTest, PermuteGivesZerosToDevicesWithoutASource) {
  EXPECT_EQ(
      Results(CollectiveKind::kPermute, 1, 1, {{{0, 1, 3}}}, {3, 0, -1, -1}),
      (All{{3}, {0}, {0}, {0}}));
}

TEST_P(GangTest, BroadcastIsFromTheFirstOfTheGroup) {
  EXPECT_EQ(Results(CollectiveKind::kBroadcast, 1, 1, {{{2, 0, 1}}}),
            (All{{2}, {2}, {2}, {0}}));
}

// Sums whose order shows in the result: 2^24 + 1 is no f32.
TEST_P(GangTest, BitsDoNotDependOnWhoArrivesLast) {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {1});
  const uint32_t y = b.Result(DType::kF32, {1});
  b.program.num_partitions = 3;
  b.program.steps = {Across(CollectiveKind::kAllReduce, x, y, {{{1, 2, 0}}})};
  const auto bits = [](float v) { return std::bit_cast<int32_t>(v); };
  for (int round = 0; round < 50; ++round) {
    const Ran ran =
        RunOn(b, {{bits(0x1p24f)}, {bits(1)}, {bits(1)}}, 1, GetParam());
    EXPECT_EQ(ran.results, (All(3, {bits(0x1p24f + 2)})));
  }
}

// Counts partition(i) + trips iterations, each with a collective.
Builder Loop(const std::vector<int32_t>& trips) {
  Builder b;
  b.program.num_partitions = static_cast<uint32_t>(trips.size());
  b.program.locations.push_back(
      {"stablehlo.all_reduce", "psum", "train.py", 31});
  const uint32_t x = b.Argument(DType::kI32, {1});
  const uint32_t y = b.Result(DType::kI32, {1});
  const uint32_t mine = b.Temporary(DType::kI32, {1});
  const uint32_t sum = b.Temporary(DType::kI32, {1});
  const uint32_t left = b.Temporary(DType::kI32, {1});
  const uint32_t flag = b.Temporary(DType::kBool, {1});
  std::vector<int32_t> down(64);
  std::iota(down.begin() + 1, down.end(), 0);
  std::vector<uint8_t> some(64, 1);
  some[0] = 0;
  const uint32_t before = b.Constant<int32_t>(DType::kI32, {64}, down);
  const uint32_t positive = b.Constant<uint8_t>(DType::kBool, {64}, some);
  Step meet = Across(CollectiveKind::kAllReduce, mine, sum, {{{0, 1}}});
  std::get<Collective>(meet.value).location = 1;
  const uint32_t next = b.Temporary(DType::kI32, {1});
  b.program.steps = {
      Builder::CopyOf({b.Whole(x, left), b.Whole(x, mine)}),
      {While{{Builder::Pick(positive, left, flag)},
             flag,
             {meet, Builder::CopyOf({b.Whole(sum, mine)}),
              Builder::Pick(before, left, next),
              Builder::CopyOf({b.Whole(next, left)})},
             Builder::cost,
             0}},
      Builder::CopyOf({b.Whole(mine, y)}),
  };
  return b;
}

TEST_P(GangTest, CollectivesInLoopsMeetInOrder) {
  const Ran ran = RunOn(Loop({5, 5}), {{5}, {5}}, 1, GetParam());
  EXPECT_TRUE(ran.status.ok()) << ran.status.message();
  EXPECT_EQ(ran.results, (All{{160}, {160}}));
}

TEST_P(GangTest, ADeviceThatLeavesALoopEarlierIsAnError) {
  if (GetParam() == Way::kInProcesses) GTEST_SKIP() << "see ProcessesTest";
  const Ran ran = RunOn(Loop({5, 3}), {{5}, {3}}, 1, GetParam());
  EXPECT_EQ(ran.status.code(), Code::kFailedPrecondition);
  for (const char* part : {"device 10 waits in psum (all_reduce) over {0,1} "
                           "(program test, operation "
                           "stablehlo.all_reduce \"psum\", train.py:31)",
                           "device 11 has ended"}) {
    EXPECT_NE(ran.status.message().find(part), std::string::npos)
        << ran.status.message();
  }
}

TEST_P(GangTest, ACancelledDeviceEndsTheOthers) {
  if (GetParam() != Way::kOnThreads) GTEST_SKIP() << "nobody is cancelled";
  static Engine* engine = MakeModelEngine(2).release();
  const Builder b = Loop({5, 5});
  auto program =
      engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
  const auto gang = (*program)->MakeGang({0, 1}, nullptr);
  const int32_t five = 5;
  int32_t result = 0;
  const void* in = &five;
  void* out = &result;
  Status status;
  std::thread waiting(
      [&] { status = gang->Run(0, {{&in, 1}, {&out, 1}, nullptr}); });
  gang->Cancel(1, Internal("the client was closed"));
  waiting.join();
  EXPECT_EQ(status.message(), "the client was closed");
}

TEST_P(GangTest, SlicesOutsideOfTheirArraysAreErrors) {
  Builder b;
  b.program.num_partitions = 2;
  const uint32_t x = b.Argument(DType::kI32, {4});
  const uint32_t y = b.Result(DType::kI32, {4});
  const uint32_t starts = b.Constant<int32_t>(DType::kI32, {2}, {0, 1});
  const uint32_t sizes = b.Constant<int32_t>(DType::kI32, {2}, {1, 2});
  const uint32_t ends = b.Constant<int32_t>(DType::kI32, {2}, {0, 2});
  const uint32_t wrong = b.Constant<int32_t>(DType::kI32, {2}, {0, 3});
  Step step = Across(CollectiveKind::kRaggedAllToAll, x, y, {{{0, 1}}});
  auto& ragged = std::get<Collective>(step.value);
  ragged.operands = {x, x, starts, sizes, ends, sizes};
  b.program.steps = {step};
  const All arguments{{1, 2, 3, 4}, {5, 6, 7, 8}};
  Ran ran = RunOn(b, arguments, 4, GetParam());
  EXPECT_TRUE(ran.status.ok()) << ran.status.message();
  EXPECT_EQ(ran.results, (All{{5, 2, 3, 4}, {5, 6, 6, 7}}));
  ragged.operands[4] = wrong;
  b.program.steps = {step};
  ran = RunOn(b, arguments, 4, GetParam());
  EXPECT_EQ(ran.status.code(), Code::kInvalidArgument);
  EXPECT_NE(ran.status.message().find("sends 2 rows from row 1 of 4"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ways, GangTest,
                         testing::Values(Way::kInTurn, Way::kOnThreads,
                                         Way::kInProcesses),
                         [](const auto& info) -> std::string {
                           if (info.param == Way::kInTurn) return "InTurn";
                           if (info.param == Way::kOnThreads)
                             return "OnThreads";
                           return "InProcesses";
                         });

TEST(ProcessesTest, AProcessThatEndsEarlierFailsTheOther) {
  const Ran ran = RunOn(Loop({5, 3}), {{5}, {3}}, 1, Way::kInProcesses);
  EXPECT_EQ(ran.status.message(), "process 1 has ended");
}

TEST(ProcessesTest, AProcessThatDoesNotAnswerIsNamed) {
  const Ran ran = RunOn(Loop({5, 5}), {{5}, {5}}, 1, Way::kInProcesses,
                        /*processes=*/1);
  EXPECT_EQ(ran.status.code(), Code::kDeadlineExceeded);
  for (const char* part :
       {"process 1 (partition 1) did not answer process 0 within 50 ms",
        "program test in psum (all_reduce) over {0,1}", "train.py:31"}) {
    EXPECT_NE(ran.status.message().find(part), std::string::npos)
        << ran.status.message();
  }
}

}  // namespace
}  // namespace ipu
