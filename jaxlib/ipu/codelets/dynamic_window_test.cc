// Tests dynamic slices and updates, for both instruction sets.

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/windows_test_util.h"

namespace ipu::model {
namespace {

// A slice with one start index of any integer type.
template <typename Index>
void CheckStart(DType dtype, Index start, int64_t expected) {
  std::vector<float> operand = {0, 1, 2, 3, 4};
  std::vector<Index> index = {start};
  const program::Execute step;
  ComputeSet set{step,
                 {2},
                 {Dense(0, DType::kF32, {5}, {0}), Dense(1, dtype, {}, {-1})},
                 {Dense(2, DType::kF32, {2}, {0})}};
  program::DynamicSlice fields;
  fields.dynamic_dims = {0};
  ThreadPool threads(1);
  for (const Factories* table : SupportedFactories()) {
    std::vector<float> result(2);
    char* bases[] = {Bytes(operand), Bytes(index), Bytes(result)};
    KernelOr kernel = table->kernel(set, {fields});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    EXPECT_EQ(result[0], expected);
    EXPECT_EQ(result[1], expected + 1);
  }
}

TEST(DynamicSlice, ClampsEveryTypeOfIndex) {
  CheckStart<int8_t>(DType::kI8, -128, 0);
  CheckStart<int16_t>(DType::kI16, 2, 2);
  CheckStart<int32_t>(DType::kI32, std::numeric_limits<int32_t>::max(), 3);
  CheckStart<int32_t>(DType::kI32, -1, 0);
  CheckStart<int64_t>(DType::kI64, std::numeric_limits<int64_t>::min(), 0);
  CheckStart<uint8_t>(DType::kU8, 255, 3);
  CheckStart<uint16_t>(DType::kU16, 1, 1);
  CheckStart<uint32_t>(DType::kU32, 0xffffffff, 3);
  CheckStart<uint64_t>(DType::kU64, ~uint64_t{0}, 3);
}

TEST(DynamicUpdate, WritesTheWindow) {
  std::vector<int16_t> update = {1, 2, 3, 4};
  std::vector<int32_t> row = {1};
  std::vector<uint8_t> column = {9};
  const program::Execute step;
  ComputeSet set{
      step,
      {2, 2},
      {Dense(0, DType::kI16, {2, 2}, {1, 0}),  // transposed
       Dense(1, DType::kI32, {}, {-1, -1}), Dense(2, DType::kU8, {}, {-1, -1})},
      {Dense(3, DType::kI16, {4, 3}, {0, 1})}};
  program::DynamicUpdate fields;
  fields.dynamic_dims = {0, 1};
  ThreadPool threads(1);
  for (const Factories* table : SupportedFactories()) {
    std::vector<int16_t> result(12);
    char* bases[] = {Bytes(update), Bytes(row), Bytes(column), Bytes(result)};
    KernelOr kernel = table->kernel(set, {fields});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    EXPECT_EQ(result,
              (std::vector<int16_t>{0, 0, 0, 0, 1, 3, 0, 2, 4, 0, 0, 0}));
  }
}

}  // namespace
}  // namespace ipu::model
