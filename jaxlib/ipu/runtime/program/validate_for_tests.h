// The program that the tests of the validator change, one error at a time.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_FOR_TESTS_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_FOR_TESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <variant>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/validate.h"

namespace ipu::program {

inline constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// Tensors: 0 argument f32[4,6], 1 result f32[4,6], 2 temporary i32[],
// 3 constant i32[8], 4 temporary bool[], 5 placed: transposed view of 0.
inline Builder Example() {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {4, 6});
  const uint32_t y = b.Result(DType::kF32, {4, 6});
  const uint32_t i = b.Temporary(DType::kI32, {});
  const uint32_t table =
      b.Constant<int32_t>(DType::kI32, {8}, {1, 2, 3, 4, 5, 6, 7});
  const uint32_t flag = b.Temporary(DType::kBool, {});
  const uint32_t placed = b.Placed(x, {6, 4}, 0, {1, 6});
  b.program.aliases = {{0, 0}};
  b.program.host_types = {{0, 0, DType::kF32, {4, 6}, {}, 1}};
  b.program.steps = {
      Builder::CopyOf({b.Whole(x, y), b.Whole(x, placed)}),
      Builder::Pick(table, i, i),
      {While{{}, flag, {}, Builder::cost, 0}},
      {Switch{i, {{}, {}}, Builder::cost, 0}},
      {HostCopy{x, 1, Builder::cost, 0}},
      {HostCallback{"f",
                    {},
                    {{x, {1, 0}, DType::kF32}, {i, {}, DType::kI32}},
                    {{y, {0, 1}, DType::kF32}},
                    {0},
                    Builder::cost,
                    0}},
  };
  return b;
}

// Whether the validator refuses a program, with the code of corrupt ones.
inline bool IsRefused(const Builder& b) {
  const Status status = Validate(b.program, b.constants.size());
  EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss);
  return !status.ok();
}

// Whether it refuses the example after a change.
inline bool Refused(const std::function<void(Program&)>& change) {
  Builder b = Example();
  change(b.program);
  return IsRefused(b);
}

template <typename T>
T& StepOf(Program& p, size_t i) {
  return std::get<T>(p.steps[i].value);
}

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_FOR_TESTS_H_
