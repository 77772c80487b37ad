#include "jaxlib/ipu/runtime/pjrt/run_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace ipu {
namespace {

StepInfo Leaf(double cycles) {
  StepInfo step;
  step.compute_cycles = cycles;
  return step;
}

StepInfo Control(StepInfo::Kind kind, std::vector<std::vector<StepInfo>> blocks,
                 double cycles = 0) {
  StepInfo step = Leaf(cycles);
  step.kind = kind;
  step.blocks = std::move(blocks);
  return step;
}

TEST(RunStepsTest, AWhileLoopTestsOnceMoreThanItIterates) {
  RunCounters counters;
  counters.trips = {3};
  const std::vector<StepInfo> steps = {
      Leaf(5), Control(StepInfo::Kind::kWhile, {{Leaf(10)}, {Leaf(100)}}, 1)};
  const RunBlock block = Resolve(steps, counters);
  EXPECT_EQ(block.steps[1].trips, 3);
  EXPECT_EQ(block.steps[1].cycles, 4 * (10 + 1) + 3 * 100);
  EXPECT_EQ(block.cycles, 5 + block.steps[1].cycles);
}

TEST(RunStepsTest, AConditionalHasTheCyclesOfTheBranchThatRan) {
  RunCounters counters;
  counters.branches = {0, 1};
  const std::vector<StepInfo> steps = {
      Control(StepInfo::Kind::kSwitch, {{Leaf(10)}, {Leaf(100)}}, 1)};
  EXPECT_EQ(Resolve(steps, counters).cycles, 101);
}

TEST(RunStepsTest, WhatALoopRepeatsIsTheMeanOfItsRuns) {
  RunCounters counters;
  counters.trips = {6};
  counters.branches = {1, 3};
  StepInfo repeat =
      Control(StepInfo::Kind::kRepeat,
              {{Control(StepInfo::Kind::kWhile, {{}, {Leaf(10)}}),
                Control(StepInfo::Kind::kSwitch, {{Leaf(100)}, {Leaf(200)}})}});
  repeat.count = 4;
  const std::vector<StepInfo> steps = {repeat};
  const RunBlock block = Resolve(steps, counters);
  const RunBlock& body = block.steps[0].blocks[0];
  EXPECT_EQ(body.steps[0].trips, 1.5);
  EXPECT_EQ(body.steps[1].shares, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(block.cycles, 6 * 10 + 1 * 100 + 3 * 200);
}

TEST(RunStepsTest, WhatDidNotRunTakesNoTime) {
  RunCounters counters;
  counters.trips = {0};
  counters.branches = {1, 0};
  const std::vector<StepInfo> steps = {
      Control(StepInfo::Kind::kSwitch,
              {{Leaf(7)},
               {Control(StepInfo::Kind::kWhile, {{Leaf(10)}, {Leaf(100)}})}})};
  EXPECT_EQ(Resolve(steps, counters).cycles, 7);
}

}  // namespace
}  // namespace ipu
