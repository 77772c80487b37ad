// Maps that their readers compute again: which are, and that results are the
// same.

#include "jaxlib/ipu/runtime/model/recomputed_maps.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

// Some more than 16 MiB of floats.
constexpr int64_t kMany = (int64_t{4} << 20) + 37;
constexpr uint32_t kScratch = 0, kConstants = 1, kArgument = 2, kResult = 3;

// Of the scratch: x - m is first, then m, the sum, and memory to spare.
constexpr int64_t kShifted = 0, kM = kMany * 4, kSum = kM + 64,
                  kSpare = kSum + 64, kAll = kSpare + 256;
// Tensors.
enum : uint32_t { kXTensor, kMTensor, kShiftedTensor, kSumTensor, kYTensor };

program::Execute Step(program::Fields fields, std::vector<uint32_t> operands,
                      uint32_t result) {
  program::Execute step;
  step.fields = std::move(fields);
  for (const uint32_t tensor : operands) step.operands.push_back({tensor, {}});
  step.results = {{result, {}}};
  return step;
}

// op(x, y), or its function if there is one.
constexpr Opcode kNone = Opcode::kSelect;
program::Fields MapOf(Opcode op, Opcode function = kNone) {
  Builder code;
  const uint16_t x = code.Load<float>(0), y = code.Load<float>(1);
  uint16_t value = code.Add(op, RegisterType::kF32, {x, y});
  if (function != kNone) {
    value = code.Add(function, RegisterType::kF32, {value});
  }
  code.map.outputs = {value};
  return {code.map};
}

// The sum of an operand times 2.
program::Fields SumOf() {
  Builder code;
  program::Reduce sum;
  sum.num_reduced = 1;
  sum.kind = static_cast<uint8_t>(program::ReduceKind::kSum);
  const uint16_t two = code.Constant(2.f), x = code.Load<float>(0);
  sum.outputs = {code.Add(Opcode::kMul, RegisterType::kF32, {x, two})};
  sum.code = code.map.code;
  return {sum};
}

Operand Vector(uint32_t base, int64_t offset = 0) {
  Operand o = Strided(base, DType::kF32, {kMany}, {1});
  o.view.offset = offset;
  return o;
}
Operand Scalar(int64_t offset) {
  Operand o = Strided(kScratch, DType::kF32, {}, {});
  o.view.offset = offset;
  o.dims = {-1};
  return o;
}

// f(x - m), the sum of twice that, and their quotient.
struct Softmax {
  explicit Softmax(Opcode function = Opcode::kExp, int64_t sum_at = kSum)
      : shift(Step(MapOf(Opcode::kSub, function), {kXTensor, kMTensor},
                   kShiftedTensor)),
        sum(Step(SumOf(), {kShiftedTensor}, kSumTensor)),
        divide(
            Step(MapOf(Opcode::kDiv), {kShiftedTensor, kSumTensor}, kYTensor)) {
    const std::vector<int64_t> shape = {kMany};
    steps = std::vector<ComputeSet>{
        {shift,
         shape,
         {Vector(kArgument), Scalar(kM)},
         {Vector(kScratch, kShifted)}},
        {sum, shape, {Vector(kScratch, kShifted)}, {Scalar(sum_at)}},
        {divide,
         shape,
         {Vector(kScratch, kShifted), Scalar(sum_at)},
         {Vector(kResult)}}};
    roots.resize(5);
    roots[kMTensor] = {kMTensor, kM, 4, 2};
    roots[kShiftedTensor] = {kShiftedTensor, kShifted, kMany * 4, 3};
    roots[kSumTensor] = {kSumTensor, sum_at, 4, 2};
  }

  std::vector<ComputeSet> Recompute() {
    JoinSite site{storage, nullptr, *SupportedFactories()[0], kSpare};
    std::vector<ComputeSet> found = RecomputeMaps(steps, site, roots, made);
    used = site.used;
    return found;
  }

  program::Execute shift, sum, divide;
  std::vector<ComputeSet> steps;
  std::vector<ArenaRoot> roots;
  std::vector<uint32_t> storage = {kScratch, kConstants, kArgument, kResult};
  std::deque<program::Execute> made;
  int64_t used = 0;
};

// The quotients that steps compute.
std::vector<float> Run(const Factories& table,
                       const std::vector<ComputeSet>& steps) {
  std::vector<float> x(kMany), result(kMany, -1);
  for (int64_t i = 0; i < kMany; ++i) {
    x[i] = static_cast<float>(i % 997) / 128 - 3;
  }
  std::vector<char> scratch(kAll);
  const float m = 1.5f;
  std::memcpy(&scratch[kM], &m, sizeof m);
  char* bases[] = {scratch.data(), nullptr, reinterpret_cast<char*>(x.data()),
                   reinterpret_cast<char*>(result.data())};
  ThreadPool threads(2);
  for (const ComputeSet& set : steps) {
    const KernelOr kernel = table.kernel(set, set.step.fields);
    if (!kernel.ok()) {
      ADD_FAILURE() << kernel.status().message();
      return {};
    }
    (*kernel)->Run(Memory{bases}, threads);
  }
  return result;
}

void ExpectSameResults(Softmax& softmax) {
  const std::vector<ComputeSet> found = softmax.Recompute();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].operands.size(), 2u);
  EXPECT_EQ(found[0].step.operands.size(), 2u);
  EXPECT_EQ(found[1].operands.size(), 3u);
  for (const Factories* table : SupportedFactories()) {
    const std::vector<float> expected = Run(*table, softmax.steps);
    const std::vector<float> result = Run(*table, found);
    for (int64_t i = 0; i < kMany; ++i) {
      // Sums may be in another order.
      ASSERT_NEAR(result[i], expected[i], 1e-6 * expected[i]) << i;
    }
  }
}

TEST(RecomputedMaps, ReadersComputeThem) {
  Softmax softmax;
  ExpectSameResults(softmax);
  EXPECT_EQ(softmax.used, 0);
}

// The sum may have the memory of m, which no step of the program reads later.
TEST(RecomputedMaps, WhatTheyReadIsKept) {
  Softmax softmax(Opcode::kExp, kM);
  ExpectSameResults(softmax);
  EXPECT_GT(softmax.used, 0);
  EXPECT_EQ(softmax.roots[kSumTensor].address, kSpare);
}

TEST(RecomputedMaps, OnlyOfMapsThatAreWorthIt) {
  EXPECT_EQ(Softmax(Opcode::kTan).Recompute().size(), 3u);
  // One reader computes what the map would have.
  Softmax once(Opcode::kTan);
  once.steps.pop_back();
  once.roots[kShiftedTensor].accesses = 2;
  EXPECT_EQ(once.Recompute().size(), 1u);
}

// As where the argument is donated: its elements are overwritten.
TEST(RecomputedMaps, NotWhereAnArgumentIsOverwritten) {
  Softmax softmax;
  softmax.storage[kResult] = kArgument;
  EXPECT_EQ(softmax.Recompute().size(), 3u);
}

TEST(RecomputedMaps, OnlyIfNothingElseNeedsThem) {
  const auto left = [](const std::function<void(Softmax&)>& change) {
    Softmax softmax;
    change(softmax);
    return softmax.Recompute().size();
  };
  EXPECT_EQ(left([](Softmax&) {}), 2u);
  // Another step reads it, or it is a result.
  EXPECT_EQ(left([](Softmax& s) { s.roots[kShiftedTensor].accesses = 4; }), 3u);
  EXPECT_EQ(left([](Softmax& s) { s.roots[kShiftedTensor].accesses = 0; }), 3u);
  // A part of a larger root.
  EXPECT_EQ(left([](Softmax& s) { s.roots[kShiftedTensor].bytes += 4; }), 3u);
  // Read backwards.
  EXPECT_EQ(left([](Softmax& s) {
              View& view = s.steps[2].operands[0].view;
              view.offset += (kMany - 1) * 4;
              view.strides = {-1};
            }),
            3u);
  // Written by another step.
  EXPECT_EQ(left([](Softmax& s) {
              s.steps =
                  std::vector<ComputeSet>{s.steps[1], s.steps[0], s.steps[2]};
            }),
            3u);
  // Codes that are wrong.
  EXPECT_EQ(left([](Softmax& s) {
              std::get<program::Map>(s.divide.fields.value).outputs = {999};
            }),
            3u);
  EXPECT_EQ(left([](Softmax& s) {
              std::get<program::Map>(s.shift.fields.value).code.pop_back();
            }),
            3u);
}

// Results of a type in which nothing is computed are rounded.
TEST(RecomputedMaps, NotIfTheyAreRounded) {
  const auto left = [](DType dtype, uint32_t item_size) {
    const std::vector<int64_t> shape = {2 * kMany};
    Softmax softmax(kNone);  // cheap, so that it is worth it of 16 bits, too
    for (ComputeSet& set : softmax.steps) set.shape = shape;
    softmax.steps[0].operands[0].view.shape = shape;
    softmax.steps[2].results[0].view.shape = shape;
    for (Operand* o :
         {&softmax.steps[0].results[0], &softmax.steps[1].operands[0],
          &softmax.steps[2].operands[0]}) {
      o->view.shape = shape;
      o->view.dtype = dtype;
      o->view.item_size = item_size;
    }
    softmax.roots[kShiftedTensor].bytes = 2 * kMany * item_size;
    return softmax.Recompute().size();
  };
  EXPECT_EQ(left(DType::kF32, 4), 2u);
  EXPECT_EQ(left(DType::kF16, 2), 3u);
}

}  // namespace
}  // namespace ipu::model
