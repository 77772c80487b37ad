// Runs programs from bytes to results: control flow, copies, costs, donation.

#include "jaxlib/ipu/runtime/engine/engine.h"

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu {
namespace {

using namespace program;  // NOLINT

std::unique_ptr<LoadedProgram> Load(const Builder& b) {
  static Engine* engine = MakeModelEngine(2).release();
  auto loaded =
      engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? std::move(*loaded) : nullptr;
}

// Runs a program on vectors, which it reads or writes as a whole.
template <typename T>
std::vector<T> RunOnce(const Builder& b, const std::vector<T>& argument,
                       size_t results, RunCounters* counters = nullptr) {
  const auto program = Load(b);
  std::vector<T> result(results);
  std::vector<const void*> arguments;
  if (!b.program.arguments.empty()) arguments.push_back(argument.data());
  void* outs[] = {result.data()};
  EXPECT_TRUE(program->Run(arguments, outs, counters).ok());
  return result;
}

// Counts by looking up successors in a table, so that copies and slices
// suffice.
struct Counter {
  explicit Counter(Builder& b) {
    std::vector<int32_t> next(64);
    std::iota(next.begin(), next.end(), 1);
    successor = b.Constant<int32_t>(DType::kI32, {64}, next);
    zero = b.Constant<int32_t>(DType::kI32, {1}, {0});
    value = b.Temporary(DType::kI32, {1});
    step = {Builder::Pick(successor, value,
                          scratch = b.Temporary(DType::kI32, {1})),
            Builder::CopyOf({b.Whole(scratch, value)})};
    reset = Builder::CopyOf({b.Whole(zero, value)});
  }
  uint32_t successor, zero, value, scratch;
  std::vector<Step> step;
  Step reset;
};

// A table of flags that are true below n.
uint32_t Below(Builder& b, int n) {
  std::vector<uint8_t> flags(64, 0);
  std::fill_n(flags.begin(), n, 1);
  return b.Constant<uint8_t>(DType::kBool, {64}, flags);
}

TEST(Engine, ReportsTheProgramsInfo) {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {2, 3});
  b.Argument(DType::kI8, {});
  const uint32_t y = b.Result(DType::kF32, {2, 3});
  b.program.steps = {Builder::CopyOf({b.Whole(x, y)})};
  b.program.aliases = {{0, 0}};
  b.program.donors = {1};
  b.program.cost_analysis = {{"flops", 2}};
  b.program.memory.temporary_bytes = 5;
  b.program.estimated_seconds = 0.5;
  b.program.module = "module";
  const auto program = Load(b);
  const ProgramInfo& info = program->info();
  EXPECT_EQ(info.name, "test");
  EXPECT_EQ(info.arguments[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(info.arguments[0].bytes, 24u);
  EXPECT_EQ(info.arguments[1].dtype, DType::kI8);
  EXPECT_EQ(info.aliases[0].result, 0u);
  EXPECT_EQ(info.donors, std::vector<uint32_t>{1});
  EXPECT_EQ(info.cost_analysis[0].first, "flops");
  EXPECT_EQ(info.temporary_bytes, 5);
  EXPECT_EQ(info.estimated_seconds, 0.5);
  EXPECT_EQ(info.module.text, "module");
  EXPECT_EQ(program->Run({}, {}, nullptr).code(), Code::kInvalidArgument);
}

TEST(Engine, TheModuleIsPutTogether) {
  Builder b;
  b.Constant<uint8_t>(DType::kBool, {4}, {'a', 'b', 'c', 'd'});
  b.program.module = "module";
  b.program.omissions = {{0, 0, 1}, {3, 1, 2}, {3, 3, 1}, {6, 0, 0}, {6, 2, 1}};
  const auto program = Load(b);
  const ModuleText& module = program->info().module;
  std::string whole(module.size(), '?');
  module.CopyTo(whole.data());
  EXPECT_EQ(whole, "amodbcdulec");
}

TEST(Engine, WhileAddsUpItsCosts) {
  Builder b;
  Counter i(b);
  const uint32_t flags = Below(b, 10);
  const uint32_t flag = b.Temporary(DType::kBool, {1});
  const uint32_t y = b.Result(DType::kI32, {1});
  b.program.steps = {
      i.reset,
      {While{{Builder::Pick(flags, i.value, flag)},
             flag,
             i.step,
             Builder::cost,
             0}},
      Builder::CopyOf({b.Whole(i.value, y)}),
  };
  RunCounters counters;
  EXPECT_EQ(RunOnce<int32_t>(b, {}, 1, &counters), std::vector<int32_t>{10});
  // Two copies, eleven tests with two steps, ten bodies with two steps.
  EXPECT_EQ(counters.cycles, 7.0 * (2 + 11 * 2 + 10 * 2));
  EXPECT_EQ(counters.exchange_bytes, 16.0 * (2 + 11 * 2 + 10 * 2));
}

TEST(Engine, NestedLoops) {
  Builder b;
  Counter inner(b);
  Counter total(b);
  const uint32_t flags = Below(b, 3);
  const uint32_t flag = b.Temporary(DType::kBool, {1});
  const uint32_t y = b.Result(DType::kI32, {1});
  std::vector<Step> body = inner.step;
  body.insert(body.end(), total.step.begin(), total.step.end());
  const Step loop = {
      While{{Builder::Pick(flags, inner.value, flag)}, flag, body, {}, 0}};
  b.program.steps = {
      total.reset,
      {Repeat{5, {{Repeat{2, {inner.reset, loop}, 0}}}, 0}},
      {Repeat{0, total.step, 0}},
      Builder::CopyOf({b.Whole(total.value, y)}),
  };
  EXPECT_EQ(RunOnce<int32_t>(b, {}, 1), std::vector<int32_t>{5 * 2 * 3});
}

TEST(Engine, CallsRunTheirStepsAndAddUpTheirCosts) {
  Builder b;
  Counter total(b);
  const uint32_t y = b.Result(DType::kI32, {1});
  const Step call = {Call{0, total.step, Builder::cost, 0}};
  b.program.functions = {{64}, {64}};
  b.program.steps = {
      total.reset,
      call,
      {Repeat{2, {{Call{1, {call, call}, Builder::cost, 0}}}, 0}},
      Builder::CopyOf({b.Whole(total.value, y)}),
  };
  RunCounters counters;
  EXPECT_EQ(RunOnce<int32_t>(b, {}, 1, &counters), std::vector<int32_t>{5});
  // Two copies; five calls of the first function, two of the second.
  const auto steps = static_cast<double>(total.step.size());
  EXPECT_EQ(counters.cycles, 7.0 * (2 + 5 * (1 + steps) + 2));
}

TEST(Engine, SwitchTakesTheLastBranchWhenOutOfRange) {
  for (DType dtype : {DType::kI32, DType::kBool}) {
    Builder b;
    const uint32_t x = b.Argument(dtype, {});
    const uint32_t y =
        b.Result(dtype == DType::kI32 ? DType::kI32 : DType::kBool, {1});
    std::vector<Branch> branches;
    for (int i = 0; i < (dtype == DType::kI32 ? 3 : 2); ++i) {
      const uint32_t value =
          dtype == DType::kI32
              ? b.Constant<int32_t>(DType::kI32, {1}, {i + 10})
              : b.Constant<uint8_t>(DType::kBool, {1}, {uint8_t(i)});
      branches.push_back({{Builder::CopyOf({b.Whole(value, y)})}});
    }
    b.program.steps = {{Switch{x, branches, Builder::cost, 0}}};
    if (dtype == DType::kI32) {
      for (int32_t i : {0, 1, 2, 3, -1, 1 << 30}) {
        const int32_t expected = i >= 0 && i < 3 ? 10 + i : 12;
        EXPECT_EQ(RunOnce<int32_t>(b, {i}, 1)[0], expected) << i;
      }
    } else {
      EXPECT_EQ(RunOnce<uint8_t>(b, {1}, 1)[0], 0);  // true selects the first
      EXPECT_EQ(RunOnce<uint8_t>(b, {0}, 1)[0], 1);
    }
  }
}

TEST(Engine, ARepeatedExchangeOfPlacedTensorsIsChargedButCopiesNothing) {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {2, 3});
  const uint32_t y = b.Result(DType::kF32, {3, 2});
  const uint32_t placed = b.Placed(x, {3, 2}, 0, {1, 3});
  b.program.host_types = {
      {0, 0, DType::kF32, {2, 3}, {}, 1}};  // in host memory
  b.program.steps = {
      {Repeat{1000000000000, {Builder::CopyOf({b.Whole(x, placed)})}, 0}},
      {HostCopy{x, 1, Builder::cost, 0}},
      Builder::CopyOf({b.Whole(placed, y)}),
  };
  RunCounters counters;
  EXPECT_EQ(RunOnce<float>(b, {1, 2, 3, 4, 5, 6}, 6, &counters),
            (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(counters.cycles, 7e12 + 14);
}

// Moves, in one exchange, between the four parts of one temporary.
std::vector<int32_t> Permute(const std::vector<std::pair<int, int>>& moves) {
  Builder b;
  const uint32_t x = b.Argument(DType::kI32, {4, 2});
  const uint32_t t = b.Temporary(DType::kI32, {4, 2});
  const uint32_t y = b.Result(DType::kI32, {4, 2});
  std::vector<Move> parts;
  for (const auto& [from, to] : moves) {
    parts.push_back({t, from * 2, {1}, t, to * 2, {1}, {2}});
  }
  b.program.steps = {Builder::CopyOf({b.Whole(x, t)}), Builder::CopyOf(parts),
                     Builder::CopyOf({b.Whole(t, y)})};
  return RunOnce<int32_t>(b, {0, 1, 2, 3, 4, 5, 6, 7}, 8);
}

TEST(Engine, MovesOfAnExchangeHappenAtOnce) {
  using Values = std::vector<int32_t>;
  EXPECT_EQ(Permute({{0, 1}, {1, 0}}), (Values{2, 3, 0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(Permute({{0, 1}, {1, 2}, {2, 3}}),
            (Values{0, 1, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Permute({{2, 3}, {1, 2}, {0, 1}}),
            (Values{0, 1, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Permute({{0, 1}, {1, 2}, {2, 3}, {3, 0}}),
            (Values{6, 7, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Permute({{0, 1}, {1, 0}, {2, 3}, {3, 2}}),
            (Values{2, 3, 0, 1, 6, 7, 4, 5}));
  EXPECT_EQ(Permute({{0, 1}, {0, 2}, {1, 0}}),
            (Values{2, 3, 0, 1, 0, 1, 6, 7}));
  EXPECT_EQ(Permute({{1, 1}, {2, 2}}), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Engine, AMoveMayOverlapItself) {
  Builder b;
  const uint32_t x = b.Argument(DType::kI32, {8});
  const uint32_t t = b.Temporary(DType::kI32, {8});
  const uint32_t y = b.Result(DType::kI32, {8});
  b.program.steps = {
      Builder::CopyOf({b.Whole(x, t)}),
      Builder::CopyOf({{t, 0, {1}, t, 1, {1}, {7}}}),
      Builder::CopyOf({{t, 7, {-1}, t, 0, {1}, {8}}}),
      Builder::CopyOf({b.Whole(t, y)}),
  };
  EXPECT_EQ(RunOnce<int32_t>(b, {0, 1, 2, 3, 4, 5, 6, 7}, 8),
            (std::vector<int32_t>{6, 5, 4, 3, 2, 1, 0, 0}));
}

TEST(Engine, PlacedSourcesAreReadThroughTheirRoots) {
  // A placed tensor [4, 3], a transposed view of its root, is read by one move
  // of twelve elements.
  Builder b;
  const uint32_t x = b.Argument(DType::kI32, {3, 4});
  const uint32_t placed = b.Placed(x, {4, 3}, 0, {1, 4});
  const uint32_t y = b.Result(DType::kI32, {12});
  b.program.steps = {
      Builder::CopyOf({{placed, 0, {1}, y, 0, {1}, {12}}}),
  };
  std::vector<int32_t> values(12);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(RunOnce<int32_t>(b, values, 12),
            (std::vector<int32_t>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  // Every second row, backwards.
  b.program.steps = {
      Builder::CopyOf({{placed, 11, {-6, -1}, y, 0, {3, 1}, {2, 3}}})};
  const std::vector<int32_t> result = RunOnce<int32_t>(b, values, 12);
  EXPECT_EQ(std::vector<int32_t>(result.begin(), result.begin() + 6),
            (std::vector<int32_t>{11, 7, 3, 9, 5, 1}));
  // Crosses rows unevenly, so it is not a strided view of the root.
  b.program.steps = {Builder::CopyOf({{placed, 1, {1}, y, 0, {1}, {5}}})};
  const auto engine = MakeModelEngine(1);
  const auto refused =
      engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
  EXPECT_EQ(refused.status().code(), Code::kUnimplemented);
  EXPECT_NE(refused.status().message().find("test.py:1"), std::string::npos);
}

TEST(Engine, ADonatedArgumentBecomesTheResult) {
  Builder b;
  const uint32_t x = b.Argument(DType::kI32, {2, 2});
  const uint32_t y = b.Result(DType::kI32, {2, 2});
  Move transpose = b.Whole(x, y);
  transpose.source_strides = {1, 2};
  b.program.aliases = {{0, 0}};
  for (bool transposed : {false, true}) {
    b.program.steps = {
        Builder::CopyOf({transposed ? transpose : b.Whole(x, y)})};
    const auto program = Load(b);
    std::vector<int32_t> data = {1, 2, 3, 4};
    const std::vector<int32_t> expected =
        transposed ? std::vector<int32_t>{1, 3, 2, 4} : data;
    std::vector<int32_t> fresh(4);
    const void* arguments[] = {data.data()};
    void* apart[] = {fresh.data()};
    void* same[] = {data.data()};
    ASSERT_TRUE(program->Run(arguments, apart, nullptr).ok());
    EXPECT_EQ(fresh, expected);
    ASSERT_TRUE(program->Run(arguments, same, nullptr).ok());
    EXPECT_EQ(data, expected);
  }
}

TEST(Engine, RunsOfOneProgramOverlap) {
  Builder b;
  constexpr int64_t kN = 20000;  // more than fits on the stack
  const uint32_t x = b.Argument(DType::kI32, {kN});
  const uint32_t t = b.Temporary(DType::kI32, {kN});
  const uint32_t y = b.Result(DType::kI32, {kN});
  Move reverse = b.Whole(x, t);
  reverse.source_offset = kN - 1;
  reverse.source_strides = {-1};
  b.program.steps = {Builder::CopyOf({reverse}),
                     Builder::CopyOf({b.Whole(t, y)})};
  const auto program = Load(b);
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      std::vector<int32_t> data(kN);
      std::iota(data.begin(), data.end(), k * kN);
      const std::vector<int32_t> expected(data.rbegin(), data.rend());
      for (int run = 0; run < 200; ++run) {
        std::vector<int32_t> result(kN);
        const void* arguments[] = {data.data()};
        void* results[] = {result.data()};
        ASSERT_TRUE(program->Run(arguments, results, nullptr).ok());
        ASSERT_EQ(result, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ipu
