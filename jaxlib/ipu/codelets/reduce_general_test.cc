// Reductions by general functions, for both instruction sets.

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/reduce_test_util.h"

namespace ipu::model {
namespace {

// Reduces by (a, b) -> b, which reveals the order of elements, and by a sum.
TEST(ReduceTest, GeneralFunctionsSeeTheElementsInOrder) {
  std::mt19937 random(11);
  ThreadPool threads(2);
  for (const Shape& shape : kShapes) {
    const std::vector<int64_t> all = All(shape);
    TestArray operand(DType::kI32, all, FirstDims(all.size()), all.size(),
                      random, true);
    ForEachIndex(all, [&](const auto& i) {
      operand.At<int32_t>(i) = static_cast<int32_t>(random() % 1000) + 1;
    });
    program::Reduce fields =
        Fields(ReduceKind::kGeneral, RegisterType::kI32, shape.reduced.size());
    // Two values: the last element and the sum; both functions are associative.
    fields.outputs = {0, 0};
    for (uint64_t i = 0; i < 4; ++i) {
      fields.combine += Load(RegisterType::kI32, i);
    }
    fields.combine += Instruction(Opcode::kAdd, RegisterType::kI32, 1, 3);
    fields.combine_outputs = {2, 4};
    fields.init.assign(16, '\0');
    fields.init[0] = 77;
    for (const Factories* table : SupportedFactories()) {
      const size_t kept_rank = shape.kept.size();
      TestArray last(DType::kI32, shape.kept, FirstDims(kept_rank), all.size(),
                     random, true);
      TestArray sum(DType::kI16, shape.kept, FirstDims(kept_rank), all.size(),
                    random, true);
      RunKernel(*table, fields, all, {&operand}, {&last, &sum}, threads);
      EXPECT_TRUE(last.GapsIntact());
      ForEachIndex(shape.kept, [&](const auto& kept) {
        int32_t want_last = 77, want_sum = 0;
        ForEachIndex(shape.reduced, [&](const auto& reduced) {
          std::vector<int64_t> i = kept;
          i.insert(i.end(), reduced.begin(), reduced.end());
          want_last = operand.At<int32_t>(i);
          want_sum += want_last;
        });
        ASSERT_EQ(last.At<int32_t>(kept), want_last);
        ASSERT_EQ(sum.At<int16_t>(kept), static_cast<int16_t>(want_sum));
      });
    }
  }
}

}  // namespace
}  // namespace ipu::model
