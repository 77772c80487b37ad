// Compares ARGMAX and ARGMIN with loops over all elements, for both instruction
// sets.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/reduce_test_util.h"

namespace ipu::model {
namespace {

template <typename T>
void CheckArg(DType dtype, RegisterType type) {
  std::mt19937 random(8);
  ThreadPool threads(2);
  for (const Shape& shape : kShapes) {
    for (ReduceKind kind : {ReduceKind::kArgmax, ReduceKind::kArgmin}) {
      for (bool shuffle : {false, true}) {
        const std::vector<int64_t> all = All(shape);
        TestArray operand(dtype, all, FirstDims(all.size()), all.size(), random,
                          shuffle);
        ForEachIndex(all, [&](const auto& i) {
          operand.At<T>(i) = static_cast<T>(random() % 50);
          if (std::is_floating_point_v<T> && random() % 199 == 0) {
            operand.At<T>(i) = std::numeric_limits<T>::quiet_NaN();
          }
        });
        for (const Factories* table : SupportedFactories()) {
          TestArray value(dtype, shape.kept, FirstDims(shape.kept.size()),
                          all.size(), random, shuffle);
          TestArray index(DType::kI32, shape.kept, FirstDims(shape.kept.size()),
                          all.size(), random, shuffle);
          program::Reduce fields = Fields(kind, type, shape.reduced.size());
          fields.init.assign(16, '\0');
          fields.init[8] = 42;
          RunKernel(*table, fields, all, {&operand}, {&value, &index}, threads);
          EXPECT_TRUE(value.GapsIntact());
          EXPECT_TRUE(index.GapsIntact());
          ForEachIndex(shape.kept, [&](const auto& kept) {
            T best = 0;
            int32_t where = 42, at = 0;  // `init`, if there are no elements
            ForEachIndex(shape.reduced, [&](const auto& reduced) {
              std::vector<int64_t> i = kept;
              i.insert(i.end(), reduced.begin(), reduced.end());
              const T x = operand.At<T>(i);
              const bool wins =
                  kind == ReduceKind::kArgmax ? x > best : x < best;
              if (at == 0 || (best == best && (wins || x != x))) {
                best = x;
                where = at;
              }
              ++at;
            });
            ASSERT_EQ(index.At<int32_t>(kept), where);
            if (best != best) {
              ASSERT_NE(value.At<T>(kept), value.At<T>(kept));
            } else {
              ASSERT_EQ(value.At<T>(kept), best);
            }
          });
        }
      }
    }
  }
}

TEST(ReduceTest, ArgmaxTakesTheFirstNaNOrTheFirstOfEquals) {
  CheckArg<float>(DType::kF32, RegisterType::kF32);
  CheckArg<double>(DType::kF64, RegisterType::kF64);
  CheckArg<int32_t>(DType::kI32, RegisterType::kI32);
  CheckArg<uint64_t>(DType::kU64, RegisterType::kU64);
}

// Elements with explicit indices, of each type that indices may have.
template <typename Index>
void CheckOwnIndices(DType dtype, RegisterType type) {
  std::mt19937 random(13);
  ThreadPool threads(2);
  for (const Shape& shape : kShapes) {
    const std::vector<int64_t> all = All(shape);
    TestArray values(DType::kI32, all, FirstDims(all.size()), all.size(),
                     random, true);
    TestArray indices(dtype, all, FirstDims(all.size()), all.size(), random,
                      true);
    ForEachIndex(all, [&](const auto& i) {
      values.At<int32_t>(i) = static_cast<int32_t>(random() % 50);
      indices.At<Index>(i) = static_cast<Index>(random() % 1000);
    });
    program::Reduce fields =
        Fields(ReduceKind::kArgmax, RegisterType::kI32, shape.reduced.size());
    fields.code += Load(type, 1);
    fields.outputs = {0, 1};
    fields.init.assign(16, '\0');
    for (const Factories* table : SupportedFactories()) {
      const std::vector<int32_t> dims = FirstDims(shape.kept.size());
      TestArray value(DType::kI32, shape.kept, dims, all.size(), random, true);
      TestArray index(DType::kI64, shape.kept, dims, all.size(), random, true);
      RunKernel(*table, fields, all, {&values, &indices}, {&value, &index},
                threads);
      ForEachIndex(shape.kept, [&](const auto& kept) {
        int32_t best = -1;
        int64_t where = 0;
        ForEachIndex(shape.reduced, [&](const auto& reduced) {
          std::vector<int64_t> i = kept;
          i.insert(i.end(), reduced.begin(), reduced.end());
          const int32_t x = values.At<int32_t>(i);
          const auto at = static_cast<int64_t>(indices.At<Index>(i));
          if (x > best || (x == best && at < where)) where = at;
          best = std::max(best, x);
        });
        ASSERT_EQ(index.At<int64_t>(kept), where);
        ASSERT_EQ(value.At<int32_t>(kept), std::max(best, 0));
      });
    }
  }
}

TEST(ReduceTest, ArgReductionsOfGivenIndices) {
  CheckOwnIndices<int32_t>(DType::kI32, RegisterType::kI32);
  CheckOwnIndices<uint32_t>(DType::kU32, RegisterType::kU32);
  CheckOwnIndices<int64_t>(DType::kI64, RegisterType::kI64);
  CheckOwnIndices<uint8_t>(DType::kU8, RegisterType::kU32);
}

}  // namespace
}  // namespace ipu::model
