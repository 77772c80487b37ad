// Compares Gather with its definition, element by element, for both instruction
// sets.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/windows_test_util.h"

namespace ipu::model {
namespace {

template <typename T, typename Index = int32_t>
void CheckGather(Case c, DType dtype, std::mt19937& random,
                 DType index_dtype = DType::kI32, int64_t wrap = 0) {
  std::vector<T> operand = RandomValues<T>(random, Count(c.operand));
  std::vector<Index> indices = IndicesAs<Index>(c);
  const program::Execute step;
  ComputeSet set{
      step,
      c.shape,
      {Dense(0, dtype, c.operand, std::vector<int32_t>(c.shape.size(), -1)),
       Dense(1, index_dtype, c.index_shape, c.index_dims)},
      {Dense(2, dtype, c.other_shape, c.other_dims)}};
  set.operands[1].index_wrap = wrap;
  Wrap<Index>(c, wrap);
  std::vector<T> expected(Count(c.shape));
  for (int64_t i = 0; i < Count(c.shape); ++i) {
    const std::vector<int64_t> index = IndexAt(i, c.shape);
    expected[PositionAt(set.results[0], index)] =
        operand[Locate(c, index, /*clamp=*/true)];
  }
  program::Gather fields;
  fields.num_batch_dims = c.fields.num_batch_dims;
  fields.start_index_map = c.fields.start_index_map;
  fields.slice_sizes = c.fields.window_sizes;
  fields.batch_dims = c.fields.batch_dims;
  fields.window_dims = c.fields.window_dims;
  ThreadPool threads(2);
  const auto check = [&](std::vector<Index>& read) {
    for (const Factories* table : SupportedFactories()) {
      std::vector<T> result(expected.size(), T(77));
      char* bases[] = {Bytes(operand), Bytes(read), Bytes(result)};
      KernelOr kernel = table->kernel(set, {fields});
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      (*kernel)->Run(Memory{bases}, threads);
      ASSERT_EQ(result, expected);
      result.assign(expected.size(), T(77));
      if (RunInLoop(*table, **kernel, Memory{bases})) {
        ASSERT_EQ(result, expected) << "in a loop";
      } else {
        EXPECT_GT(Count(c.shape), 128);
      }
    }
  };
  check(indices);
  // Read backwards, as where the step that reverses it has been left out.
  std::reverse(operand.begin(), operand.end());
  View& view = set.operands[0].view;
  view.offset = static_cast<int64_t>((operand.size() - 1) * sizeof(T));
  for (int64_t& stride : view.strides) stride = -stride;
  check(indices);
  if (fields.start_index_map.size() < 2) return;
  std::vector<Index> planes;
  const std::vector<Operand> arrays =
      IndexArrays(c, set.operands[1], indices, planes);
  set.operands.resize(1);
  set.operands.insert(set.operands.end(), arrays.begin(), arrays.end());
  check(planes);
}

TEST(Gather, RandomCases) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const Case c = RandomCase(random, 12, 9);
    CheckGather<uint8_t>(c, DType::kU8, random);
    CheckGather<float>(c, DType::kF32, random);
    CheckGather<double>(c, DType::kF64, random);
  }
}

TEST(Gather, ManyWindows) {
  std::mt19937 random(2);
  for (int i = 0; i < 12; ++i) {
    CheckGather<float>(RandomCase(random, 300, 12), DType::kF32, random);
  }
}

TEST(Gather, Points) {
  std::mt19937 random(3);
  for (const std::vector<int64_t>& operand :
       std::vector<std::vector<int64_t>>{{1}, {7}, {300}, {9, 11}, {4, 5, 6}}) {
    for (int64_t count : {1, 2, 7, 8, 15, 16, 17, 33, 130, 256, 257, 600}) {
      const Case c = Points(random, count, operand);
      CheckGather<uint8_t>(c, DType::kU8, random);
      CheckGather<uint16_t, int8_t>(c, DType::kU16, random, DType::kI8);
      CheckGather<float>(c, DType::kF32, random);
      CheckGather<float, uint8_t>(c, DType::kF32, random, DType::kU8);
      CheckGather<float, int16_t>(c, DType::kF32, random, DType::kI16);
      CheckGather<float, uint32_t>(c, DType::kF32, random, DType::kU32);
      CheckGather<int32_t, uint64_t>(c, DType::kI32, random, DType::kU64);
      CheckGather<double>(c, DType::kF64, random);
      CheckGather<double, int64_t>(c, DType::kF64, random, DType::kI64);
    }
  }
}

// Negative indices to which the kernel adds a number itself.
TEST(Gather, WrapsNegativeIndices) {
  std::mt19937 random(4);
  for (int64_t count : {1, 16, 17, 130, 600}) {
    Case c = Points(random, count, {9, 11});
    for (int32_t& i : c.indices) i -= 8;
    CheckGather<float>(c, DType::kF32, random, DType::kI32, /*wrap=*/9);
    CheckGather<double, int64_t>(c, DType::kF64, random, DType::kI64, 9);
    CheckGather<uint8_t, int8_t>(c, DType::kU8, random, DType::kI8, 9);
    CheckGather<uint8_t, uint32_t>(c, DType::kU8, random, DType::kU32, 9);
  }
  for (int i = 0; i < 100; ++i) {
    Case c = RandomCase(random, 12, 9);
    for (int32_t& i : c.indices) i -= 4;
    CheckGather<float>(c, DType::kF32, random, DType::kI32, 5);
  }
}

TEST(Gather, FieldsThatReachOutsideAreRefused) {
  const program::Execute step;
  ComputeSet set{step,
                 {4, 3},
                 {Dense(0, DType::kF32, {5, 3}, {-1, -1}),
                  Dense(1, DType::kI32, {4, 1}, {0, -1})},
                 {Dense(2, DType::kF32, {4, 3}, {0, 1})}};
  program::Gather good;
  good.num_batch_dims = 1;
  good.start_index_map = {0};
  good.slice_sizes = {1, 3};
  good.batch_dims = {-1, -1};
  good.window_dims = {-1, 0};
  const auto refused = [&](auto change) {
    program::Gather fields = good;
    change(fields);
    return SupportedFactories()[0]->kernel(set, {fields}).status().code() ==
           Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](program::Gather&) {}));
  EXPECT_TRUE(refused([](program::Gather& g) { g.start_index_map = {7}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.start_index_map = {0, 0}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.slice_sizes = {6, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.slice_sizes = {-9, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) {
    g.slice_sizes = {std::numeric_limits<int64_t>::min(), 3};
  }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.window_dims = {0, 0}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.window_dims = {-1, 1}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.batch_dims = {-1, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.num_batch_dims = 3; }));
}

}  // namespace
}  // namespace ipu::model
