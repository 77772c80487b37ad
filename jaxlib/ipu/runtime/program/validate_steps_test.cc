// What the validator rejects in exchanges, compute sets and control flow.

#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/validate_for_tests.h"

namespace ipu::program {
namespace {

TEST(Validate, Copies) {
  const auto refused = [](const std::function<void(Move&)>& change) {
    return Refused([&](Program& p) { change(StepOf<Copy>(p, 0).moves[0]); });
  };
  EXPECT_TRUE(refused([](Move& m) { m.source = 99; }));
  EXPECT_TRUE(refused([](Move& m) { m.destination = 99; }));
  EXPECT_TRUE(refused([](Move& m) { m.source = 4; }));
  EXPECT_TRUE(refused([](Move& m) { m.source_offset = 1; }));
  EXPECT_TRUE(refused([](Move& m) { m.destination_offset = -1; }));
  EXPECT_TRUE(refused([](Move& m) { m.shape = {4, kMost}; }));
  EXPECT_TRUE(refused([](Move& m) { m.shape = {4}; }));
  EXPECT_TRUE(refused([](Move& m) { m.source_strides = {kMost, 1}; }));
  EXPECT_FALSE(refused([](Move& m) { m.source_strides = {0, 0}; }));
}

TEST(Validate, MovesOfMoreElementsThanThereAre) {
  EXPECT_TRUE(Refused([](Program& p) {
    Move& move = StepOf<Copy>(p, 0).moves[0];
    move.shape = {int64_t{1} << 40};
    move.source_strides = move.destination_strides = {0};
  }));
}

TEST(Validate, ComputeSets) {
  const auto refused = [](const std::function<void(Execute&)>& change) {
    return Refused([&](Program& p) { change(StepOf<Execute>(p, 1)); });
  };
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {9}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {kMost}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {1, 1}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.partition = 99; }));
  EXPECT_TRUE(refused([](Execute& e) { e.location = 1; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].tensor = 99; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].dims = {1}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].dims = {-2}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.cost.sync_cycles = -1; }));
  EXPECT_FALSE(refused([](Execute& e) { e.shape = {8}; }));
}

TEST(Validate, AnEmptyReductionHasToFitItsResult) {
  const auto refused = [](std::vector<int64_t> shape) {
    return Refused([&](Program& p) {
      p.tensors[3].space = static_cast<uint8_t>(Space::kResult);
      p.tensors[3].address = p.results.size();
      p.results.push_back(3);
      Execute e;
      e.fields.value = Reduce{};
      e.shape = shape;
      e.operands = {{0, {0, 1}}};
      e.results = {{3, {0, -1}}};
      p.steps.push_back({e});
    });
  };
  EXPECT_FALSE(refused({4, 6}));
  EXPECT_FALSE(refused({8, 0}));
  EXPECT_TRUE(refused({9, 0}));
}

// Of the example's tensors, 0 is an argument, 3 a constant, 5 a view.
TEST(Validate, ArgumentsConstantsAndViewsAreNotWritten) {
  for (const uint32_t tensor : {0u, 3u, 5u}) {
    EXPECT_TRUE(Refused(
        [=](Program& p) { StepOf<Execute>(p, 1).results[0].tensor = tensor; }));
    if (tensor != 5) {  // exchanges may place views
      EXPECT_TRUE(Refused([=](Program& p) {
        Builder b = Example();
        p.steps.push_back(Builder::CopyOf({b.Whole(tensor, tensor)}));
      }));
    }
  }
  EXPECT_TRUE(Refused([](Program& p) {
    HostCallback& s = StepOf<HostCallback>(p, 5);
    s.results[0] = s.operands[0];
  }));
}

TEST(Validate, AMapMayWriteAViewWithoutOverlaps) {
  const auto refused = [](std::vector<int64_t> strides, bool map) {
    return Refused([&](Program& p) {
      p.tensors[5].root = 1;  // the result, [4, 6]
      p.tensors[5].strides = std::move(strides);
      Execute e = StepOf<Execute>(p, 1);
      e.shape = {6, 4};
      if (map) e.fields.value = Map{};
      e.operands = {};
      e.results = {{5, {0, 1}}};
      p.steps.push_back({e});
    });
  };
  EXPECT_FALSE(refused({1, 6}, true));
  EXPECT_TRUE(refused({1, 6}, false));
  EXPECT_TRUE(refused({1, 0}, true));
  EXPECT_TRUE(refused({1, 5}, true));
}

TEST(Validate, ResultsAreWritten) {
  const auto refused = [](std::vector<Step> steps) {
    return Refused([&](Program& p) {
      p.host_types = {};
      p.steps = std::move(steps);
    });
  };
  Builder b = Example();
  const Step write = Builder::CopyOf({b.Whole(0, 1)});
  EXPECT_TRUE(refused({}));
  EXPECT_FALSE(refused({write}));
  Step nothing = write;
  std::get<Copy>(nothing.value).moves[0].shape = {0, 6};
  EXPECT_TRUE(refused({nothing}));
  EXPECT_FALSE(refused({nothing, write}));
  EXPECT_FALSE(refused({{Repeat{2, {write}, 0}}}));
  EXPECT_TRUE(refused({{Repeat{0, {write}, 0}}}));
  EXPECT_TRUE(refused({{While{{}, 4, {write}, Builder::cost, 0}}}));
  EXPECT_FALSE(refused({{While{{write}, 4, {}, Builder::cost, 0}}}));
  EXPECT_FALSE(
      refused({{Switch{2, {{{write}}, {{write}}}, Builder::cost, 0}}}));
  EXPECT_TRUE(refused({{Switch{2, {{{write}}, {}}, Builder::cost, 0}}}));
}

TEST(Validate, ControlFlow) {
  EXPECT_TRUE(Refused(
      [](Program& p) { p.steps.push_back({Repeat{~uint64_t{0}, {}, 0}}); }));
  EXPECT_FALSE(Refused([](Program& p) {
    p.steps.push_back({Repeat{uint64_t{1} << 50, {}, 0}});
  }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<While>(p, 2).predicate = 99; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<While>(p, 2).predicate = 2; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<Switch>(p, 3).selector = 3; }));
  EXPECT_TRUE(
      Refused([](Program& p) { StepOf<Switch>(p, 3).branches.clear(); }));
  EXPECT_FALSE(Refused([](Program& p) { StepOf<Switch>(p, 3).selector = 4; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<HostCopy>(p, 4).tensor = 99; }));
  EXPECT_TRUE(Refused([](Program& p) {
    Step wrong = Builder::Pick(99, 0, 0);
    StepOf<Switch>(p, 3).branches[1].steps = {wrong};
  }));
}

}  // namespace
}  // namespace ipu::program
