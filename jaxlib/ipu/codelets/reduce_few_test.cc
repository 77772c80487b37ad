// Reductions of few elements for each of many totals, whose elements are
// computed by a program.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/reduce_test_util.h"

namespace ipu::model {
namespace {

const Shape kFewShapes[] = {
    {{65}, {2}},      {{64}, {2}},    {{66}, {8}},    {{66}, {9}},
    {{300}, {3}},     {{17, 5}, {2}}, {{90}, {2, 3}}, {{5000}, {4}},
    {{40, 50}, {5}},  {{130}, {7}},   {{129}, {1}},   {{100}, {2, 2, 2}},
    {{9, 2, 7}, {6}},
};

// x[i, j] - y[j] + j, for all i and the first reduced index j, whose elements
// are exact.
template <typename Combine>
void CheckPrograms(ReduceKind kind, float identity, const Combine& combine) {
  std::mt19937 random(static_cast<unsigned>(kind) + 20);
  ThreadPool threads(2);
  for (const Shape& shape : kFewShapes) {
    for (bool shuffle : {false, true}) {
      const std::vector<int64_t> all = All(shape);
      const size_t rank = all.size(), kept = shape.kept.size();
      SCOPED_TRACE(testing::Message() << testing::PrintToString(all) << " kind "
                                      << static_cast<int>(kind));
      TestArray x(DType::kF32, all, FirstDims(rank), rank, random, shuffle);
      TestArray y(DType::kF32, {all[kept]}, {static_cast<int32_t>(kept)}, rank,
                  random, shuffle);
      ForEachIndex(all, [&](const auto& i) {
        x.At<float>(i) = static_cast<float>(random() % 16);
        y.At<float>(i) = static_cast<float>(i[kept] * i[kept] % 5);
      });
      program::Reduce fields = Fields(kind, RegisterType::kF32, rank - kept);
      fields.code += Load(RegisterType::kF32, 1);
      fields.code += Instruction(Opcode::kSub, RegisterType::kF32, 0, 1);
      fields.code += Instruction(Opcode::kIota, RegisterType::kF32, 0, 0, kept);
      fields.code += Instruction(Opcode::kAdd, RegisterType::kF32, 2, 3);
      fields.outputs = {4};
      for (const Factories* table : SupportedFactories()) {
        TestArray result(DType::kF32, shape.kept, FirstDims(kept), rank, random,
                         shuffle);
        RunKernel(*table, fields, all, {&x, &y}, {&result}, threads);
        EXPECT_TRUE(result.GapsIntact());
        ForEachIndex(shape.kept, [&](const auto& at) {
          float total = identity;
          ForEachIndex(shape.reduced, [&](const auto& reduced) {
            std::vector<int64_t> i = at;
            i.insert(i.end(), reduced.begin(), reduced.end());
            total = combine(total, x.At<float>(i) - y.At<float>(i) +
                                       static_cast<float>(i[kept]));
          });
          ASSERT_EQ(result.At<float>(at), total);
        });
      }
    }
  }
}

TEST(ReduceFewTest, Programs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CheckPrograms(ReduceKind::kSum, 0, [](float a, float b) { return a + b; });
  CheckPrograms(ReduceKind::kMax, -kInfinity,
                [](float a, float b) { return std::max(a, b); });
  CheckPrograms(ReduceKind::kMin, kInfinity,
                [](float a, float b) { return std::min(a, b); });
}

// Sums of adjacent elements that are all -0 are +0; NaN and infinities
// propagate.
TEST(ReduceFewTest, SpecialValues) {
  std::mt19937 random(21);
  ThreadPool threads(1);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float values[] = {-0.0f, 0.0f, kNan, kInfinity, -kInfinity, 1e-40f};
  for (int64_t n = 2; n <= 17; ++n) {
    TestArray x(DType::kF32, {216, n}, {0, 1}, 2, random, false);
    ForEachIndex({216, n}, [&](const auto& i) {
      // Some totals have one value alone.
      const int64_t which = i[0] < 6 ? i[0] : static_cast<int64_t>(random());
      x.At<float>(i) = values[which % 6];
    });
    for (const auto kind :
         {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin}) {
      for (const Factories* table : SupportedFactories()) {
        TestArray result(DType::kF32, {216}, {0}, 2, random, true);
        RunKernel(*table, Fields(kind, RegisterType::kF32, 1), {216, n}, {&x},
                  {&result}, threads);
        for (int64_t i = 0; i < 216; ++i) {
          float total = x.At<float>({i, 0});
          if (kind == ReduceKind::kSum) total += 0.0f;
          for (int64_t j = 1; j < n; ++j) {
            const float value = x.At<float>({i, j});
            if (kind == ReduceKind::kSum) {
              total += value;
            } else if (total == total &&
                       (value != value ||
                        (kind == ReduceKind::kMax ? value > total
                                                  : value < total))) {
              total = value;
            }
          }
          const float got = result.At<float>({i, 0});
          if (total != total) {
            ASSERT_NE(got, got) << i;
          } else {
            ASSERT_EQ(got, total) << i;
            if (kind == ReduceKind::kSum) {
              ASSERT_EQ(std::signbit(got), std::signbit(total)) << i;
            }
          }
        }
      }
    }
  }
}

// Narrow types, whose totals wrap around or are rounded once, and booleans.
TEST(ReduceFewTest, NarrowTypes) {
  std::mt19937 random(22);
  ThreadPool threads(1);
  for (int64_t n = 2; n <= 8; ++n) {
    TestArray bytes(DType::kI8, {150, n}, {0, 1}, 2, random, true);
    TestArray flags(DType::kBool, {150, n}, {0, 1}, 2, random, true);
    ForEachIndex({150, n}, [&](const auto& i) {
      bytes.At<int8_t>(i) = static_cast<int8_t>(random());
      flags.At<uint8_t>(i) = random() % 8 == 0;
    });
    for (const Factories* table : SupportedFactories()) {
      TestArray sum(DType::kI8, {150}, {0}, 2, random, true);
      TestArray product(DType::kI8, {150}, {0}, 2, random, true);
      TestArray any(DType::kBool, {150}, {0}, 2, random, true);
      TestArray value(DType::kBool, {150}, {0}, 2, random, true);
      TestArray index(DType::kI32, {150}, {0}, 2, random, true);
      const std::vector<int64_t> shape = {150, n};
      using enum RegisterType;
      RunKernel(*table, Fields(ReduceKind::kSum, kI32, 1), shape, {&bytes},
                {&sum}, threads);
      RunKernel(*table, Fields(ReduceKind::kProduct, kI32, 1), shape, {&bytes},
                {&product}, threads);
      RunKernel(*table, Fields(ReduceKind::kOr, kU32, 1), shape, {&flags},
                {&any}, threads);
      RunKernel(*table, Fields(ReduceKind::kArgmax, kU32, 1), shape, {&flags},
                {&value, &index}, threads);
      for (int64_t i = 0; i < 150; ++i) {
        int32_t total = 0, first = -1;
        uint32_t multiplied = 1;
        for (int64_t j = 0; j < n; ++j) {
          total += bytes.At<int8_t>({i, j});
          multiplied *= static_cast<uint32_t>(bytes.At<int8_t>({i, j}));
          if (flags.At<uint8_t>({i, j}) && first < 0) {
            first = static_cast<int32_t>(j);
          }
        }
        ASSERT_EQ(sum.At<int8_t>({i, 0}), static_cast<int8_t>(total));
        ASSERT_EQ(product.At<int8_t>({i, 0}), static_cast<int8_t>(multiplied));
        ASSERT_EQ(any.At<uint8_t>({i, 0}), first >= 0);
        ASSERT_EQ(value.At<uint8_t>({i, 0}), first >= 0);
        ASSERT_EQ(index.At<int32_t>({i, 0}), std::max(first, 0));
      }
    }
  }
}

}  // namespace
}  // namespace ipu::model
