// Compares reductions with loops over all elements, for both instruction sets.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/reduce_test_util.h"

namespace ipu::model {
namespace {

// Reduces random elements by `kind` and compares with `combine` in Exact.
template <typename T, typename Exact, typename Combine>
void Check(ReduceKind kind, DType dtype, RegisterType type, Exact identity,
           double relative, const Combine& combine) {
  std::mt19937 random(static_cast<unsigned>(kind));
  ThreadPool threads(2);
  for (const Shape& shape : kShapes) {
    for (bool shuffle : {false, true}) {
      const std::vector<int64_t> all = All(shape);
      SCOPED_TRACE(testing::Message()
                   << testing::PrintToString(shape.kept) << " by "
                   << testing::PrintToString(shape.reduced) << " kind "
                   << static_cast<int>(kind) << " shuffled " << shuffle);
      TestArray operand(dtype, all, FirstDims(all.size()), all.size(), random,
                        shuffle);
      ForEachIndex(all, [&](const auto& i) {
        if constexpr (std::is_floating_point_v<T>) {
          operand.At<T>(i) = T(std::normal_distribution<double>()(random));
          if (kind == ReduceKind::kProduct) {
            operand.At<T>(i) = 1 + operand.At<T>(i) / 1000;
          }
        } else {
          operand.At<T>(i) = static_cast<T>(random());
        }
      });
      for (const Factories* table : SupportedFactories()) {
        TestArray result(dtype, shape.kept, FirstDims(shape.kept.size()),
                         all.size(), random, shuffle);
        RunKernel(*table, Fields(kind, type, shape.reduced.size()), all,
                  {&operand}, {&result}, threads);
        EXPECT_TRUE(result.GapsIntact());
        ForEachIndex(shape.kept, [&](const auto& kept) {
          Exact total = identity;
          double magnitude = 0;
          ForEachIndex(shape.reduced, [&](const auto& reduced) {
            std::vector<int64_t> i = kept;
            i.insert(i.end(), reduced.begin(), reduced.end());
            total = combine(total, Exact(operand.At<T>(i)));
            magnitude += std::abs(double(operand.At<T>(i)));
          });
          const T got = result.At<T>(kept);
          if (std::is_floating_point_v<T> && relative > 0) {
            ASSERT_NEAR(got, double(total), relative * magnitude);
          } else {
            ASSERT_EQ(got, static_cast<T>(total));
          }
        });
      }
    }
  }
}

TEST(ReduceTest, Sums) {
  const auto add = [](auto a, auto b) { return a + b; };
  // Sums of 100,003 elements are as accurate as the elements.
  Check<float, double>(ReduceKind::kSum, DType::kF32, RegisterType::kF32, 0,
                       2e-7, add);
  Check<double, long double>(ReduceKind::kSum, DType::kF64, RegisterType::kF64,
                             0, 4e-16, add);
  Check<int32_t, int64_t>(ReduceKind::kSum, DType::kI32, RegisterType::kI32, 0,
                          0, add);
  Check<int8_t, int64_t>(ReduceKind::kSum, DType::kI8, RegisterType::kI32, 0, 0,
                         add);
  Check<uint64_t, uint64_t>(ReduceKind::kSum, DType::kU64, RegisterType::kU64,
                            0, 0, add);
}

TEST(ReduceTest, Products) {
  const auto multiply = [](auto a, auto b) { return a * b; };
  Check<double, long double>(ReduceKind::kProduct, DType::kF64,
                             RegisterType::kF64, 1, 1e-12, multiply);
  Check<uint32_t, uint64_t>(ReduceKind::kProduct, DType::kU32,
                            RegisterType::kU32, 1, 0,
                            [](uint64_t a, uint64_t b) {
                              return uint64_t{uint32_t(a) * uint32_t(b)};
                            });
}

TEST(ReduceTest, Extremes) {
  const auto larger = [](auto a, auto b) { return a > b ? a : b; };
  const auto smaller = [](auto a, auto b) { return a < b ? a : b; };
  const double infinity = std::numeric_limits<double>::infinity();
  Check<double, double>(ReduceKind::kMin, DType::kF64, RegisterType::kF64,
                        infinity, 0, smaller);
  Check<int64_t, int64_t>(ReduceKind::kMax, DType::kI64, RegisterType::kI64,
                          std::numeric_limits<int64_t>::min(), 0, larger);
  Check<uint32_t, uint32_t>(ReduceKind::kMin, DType::kU32, RegisterType::kU32,
                            ~0u, 0, smaller);
  Check<int32_t, int32_t>(ReduceKind::kMax, DType::kI32, RegisterType::kI32,
                          std::numeric_limits<int32_t>::min(), 0, larger);
}

TEST(ReduceTest, Bitwise) {
  Check<uint16_t, uint16_t>(ReduceKind::kAnd, DType::kU16, RegisterType::kU32,
                            0xffff, 0, [](auto a, auto b) { return a & b; });
  Check<int64_t, int64_t>(ReduceKind::kOr, DType::kI64, RegisterType::kI64, 0,
                          0, [](auto a, auto b) { return a | b; });
  Check<uint32_t, uint32_t>(ReduceKind::kXor, DType::kU32, RegisterType::kU32,
                            0, 0, [](auto a, auto b) { return a ^ b; });
}

TEST(ReduceTest, NaNWins) {
  std::mt19937 random(7);
  ThreadPool threads(2);
  constexpr int64_t kRows = 37, kColumns = 301;
  for (ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
    for (bool columns : {false, true}) {
      TestArray operand(
          DType::kF32, {kRows, kColumns},
          columns ? std::vector<int32_t>{1, 0} : std::vector<int32_t>{0, 1}, 2,
          random, false);
      const std::vector<int64_t> shape =
          columns ? std::vector<int64_t>{kColumns, kRows}
                  : std::vector<int64_t>{kRows, kColumns};
      // Every other total has a NaN, each at a different position.
      ForEachIndex(shape, [&](const auto& i) {
        const bool nan = i[0] % 2 == 0 && i[1] == i[0] * 3 % shape[1];
        operand.At<float>(i) = nan ? NAN : float(random() % 100);
      });
      for (const Factories* table : SupportedFactories()) {
        TestArray result(DType::kF32, {shape[0]}, {0}, 2, random, false);
        RunKernel(*table, Fields(kind, RegisterType::kF32, 1), shape,
                  {&operand}, {&result}, threads);
        for (int64_t i = 0; i < shape[0]; ++i) {
          EXPECT_EQ(std::isnan(result.At<float>({i, 0})), i % 2 == 0) << i;
        }
      }
    }
  }
}

// Windows of few elements, in rows of any number of vectors and a tail.
template <typename T>
void CheckFewRows(DType dtype, RegisterType type) {
  std::mt19937 random(8);
  ThreadPool threads(1);
  for (int64_t rows : {2, 3, 9, 10}) {
    for (int64_t columns = 1; columns <= 300; columns += 1 + columns / 66) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << columns);
      TestArray operand(dtype, {rows, columns}, {1, 0}, 2, random, false);
      ForEachIndex({columns, rows}, [&](const auto& i) {
        operand.At<T>(i) = static_cast<T>(random() % 1000) - 500;
      });
      for (const Factories* table : SupportedFactories()) {
        TestArray result(dtype, {columns}, {0}, 2, random, false);
        RunKernel(*table, Fields(ReduceKind::kSum, type, 1), {columns, rows},
                  {&operand}, {&result}, threads);
        for (int64_t c = 0; c < columns; ++c) {
          T total = 0;  // exact, because elements are small integers
          for (int64_t r = 0; r < rows; ++r) total += operand.At<T>({c, r});
          ASSERT_EQ(result.At<T>({c, 0}), total) << c;
        }
      }
    }
  }
}

TEST(ReduceTest, FewRows) {
  CheckFewRows<float>(DType::kF32, RegisterType::kF32);
  CheckFewRows<double>(DType::kF64, RegisterType::kF64);
  CheckFewRows<int32_t>(DType::kI32, RegisterType::kI32);
}

// Windows along rows of memory, which overlap if they are longer than a step.
template <typename T>
void CheckSlidingWindows(DType dtype, RegisterType type, ReduceKind kind) {
  std::mt19937 random(18);
  ThreadPool threads(2);
  constexpr int64_t kRows = 5;
  for (const int64_t step : {1, 2, 3}) {
    for (const int64_t window : {2, 3, 5, 12, 13, 17, 64, 65}) {
      for (const int64_t count : {1, 7, 8, 33, 100, 530}) {
        SCOPED_TRACE(testing::Message() << count << " windows of " << window
                                        << ", " << step << " apart");
        TestArray operand(dtype, {kRows, count, std::max(window, step)},
                          {0, 1, 2}, 3, random, false);
        View& view = operand.operand().view;
        view.shape[2] = window;
        view.strides = {(count - 1) * step + window, step, 1};
        ForEachIndex({kRows, count, window}, [&](const auto& i) {
          operand.At<T>(i) = static_cast<T>(random() % 1000) - 500;
        });
        for (const Factories* table : SupportedFactories()) {
          TestArray result(dtype, {kRows, count}, {0, 1}, 3, random, false);
          RunKernel(*table, Fields(kind, type, 1), {kRows, count, window},
                    {&operand}, {&result}, threads);
          ForEachIndex({kRows, count}, [&](const auto& i) {
            T sum = 0, most = operand.At<T>({i[0], i[1], 0});
            for (int64_t k = 0; k < window; ++k) {
              const T element = operand.At<T>({i[0], i[1], k});
              sum += element;  // exact, because elements are small integers
              most = std::max(most, element);
            }
            ASSERT_EQ(result.At<T>({i[0], i[1], 0}),
                      kind == ReduceKind::kSum ? sum : most);
          });
        }
      }
    }
  }
}

TEST(ReduceTest, SlidingWindows) {
  CheckSlidingWindows<float>(DType::kF32, RegisterType::kF32, ReduceKind::kSum);
  CheckSlidingWindows<float>(DType::kF32, RegisterType::kF32, ReduceKind::kMax);
  CheckSlidingWindows<double>(DType::kF64, RegisterType::kF64,
                              ReduceKind::kSum);
  CheckSlidingWindows<int32_t>(DType::kI32, RegisterType::kI32,
                               ReduceKind::kMax);
}

TEST(ReduceTest, WindowsOfNegativeZerosAreZero) {
  std::mt19937 random(20);
  ThreadPool threads(1);
  constexpr int64_t kCount = 100;
  for (const int64_t window : {2, 9, 20, 64, 65}) {
    TestArray operand(DType::kF32, {kCount, window}, {0, 1}, 2, random, false);
    operand.operand().view.strides = {1, 1};
    ForEachIndex({kCount, window},
                 [&](const auto& i) { operand.At<float>(i) = -0.0f; });
    for (const Factories* table : SupportedFactories()) {
      TestArray result(DType::kF32, {kCount}, {0}, 2, random, false);
      RunKernel(*table, Fields(ReduceKind::kSum, RegisterType::kF32, 1),
                {kCount, window}, {&operand}, {&result}, threads);
      for (int64_t i = 0; i < kCount; ++i) {
        ASSERT_FALSE(std::signbit(result.At<float>({i, 0})))
            << i << " of " << window;
      }
    }
  }
}

// Groups of adjacent columns, each of which has one total, as channels do.
template <typename T>
void CheckGroups(DType dtype, RegisterType type, ReduceKind kind) {
  std::mt19937 random(19);
  ThreadPool threads(2);
  for (const int64_t columns : {2, 3, 4, 5, 16, 63, 64, 65}) {
    for (const int64_t groups : {1, 2, 7, 40}) {
      for (const int64_t rows : {15, 16, 50, 400}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << groups
                                        << " groups of " << columns);
        const std::vector<int64_t> shape = {2, groups, rows, columns};
        TestArray operand(dtype, {2, rows, groups, columns}, {0, 2, 1, 3}, 4,
                          random, false);
        ForEachIndex(shape, [&](const auto& i) {
          operand.At<T>(i) = static_cast<T>(random() % 1000) - 500;
        });
        for (const Factories* table : SupportedFactories()) {
          TestArray result(dtype, {2, groups}, {0, 1}, 4, random, false);
          RunKernel(*table, Fields(kind, type, 2), shape, {&operand}, {&result},
                    threads);
          ForEachIndex({2, groups}, [&](const auto& i) {
            T sum = 0, most = operand.At<T>({i[0], i[1], 0, 0});
            ForEachIndex({rows, columns}, [&](const auto& k) {
              const T element = operand.At<T>({i[0], i[1], k[0], k[1]});
              sum += element;  // exact, because elements are small integers
              most = std::max(most, element);
            });
            ASSERT_EQ(result.At<T>({i[0], i[1], 0, 0}),
                      kind == ReduceKind::kSum ? sum : most);
          });
        }
      }
    }
  }
}

TEST(ReduceTest, GroupsOfColumns) {
  CheckGroups<float>(DType::kF32, RegisterType::kF32, ReduceKind::kSum);
  CheckGroups<double>(DType::kF64, RegisterType::kF64, ReduceKind::kMax);
  CheckGroups<int32_t>(DType::kI32, RegisterType::kI32, ReduceKind::kSum);
}

TEST(ReduceTest, ElementsPassThroughTheProgram) {
  std::mt19937 random(9);
  ThreadPool threads(2);
  for (const Shape& shape : kShapes) {
    for (bool squares : {false, true}) {
      const std::vector<int64_t> all = All(shape);
      TestArray operand(DType::kF32, all, FirstDims(all.size()), all.size(),
                        random, true);
      ForEachIndex(all, [&](const auto& i) {
        operand.At<float>(i) = float(random() % 8);
      });
      program::Reduce fields =
          Fields(ReduceKind::kSum, RegisterType::kF32, shape.reduced.size());
      fields.code += Instruction(squares ? Opcode::kMul : Opcode::kAdd,
                                 RegisterType::kF32, 0, 0);
      fields.outputs = {1};
      for (const Factories* table : SupportedFactories()) {
        TestArray result(DType::kF32, shape.kept, FirstDims(shape.kept.size()),
                         all.size(), random, true);
        RunKernel(*table, fields, all, {&operand}, {&result}, threads);
        ForEachIndex(shape.kept, [&](const auto& kept) {
          float total = 0;  // exact, because elements are small integers
          ForEachIndex(shape.reduced, [&](const auto& reduced) {
            std::vector<int64_t> i = kept;
            i.insert(i.end(), reduced.begin(), reduced.end());
            const float x = operand.At<float>(i);
            total += squares ? x * x : x + x;
          });
          ASSERT_EQ(result.At<float>(kept), total);
        });
      }
    }
  }
}

TEST(ReduceTest, HalvesAreSummedInF32AndRoundedOnce) {
  std::mt19937 random(10);
  ThreadPool threads(1);
  for (int64_t size : {3, 300, 1000}) {
    TestArray operand(DType::kBF16, {5, size}, {0, 1}, 2, random, true);
    ForEachIndex({5, size}, [&](const auto& i) {
      operand.At<uint16_t>(i) = 0x3f80;  // 1 as bf16
    });
    for (const Factories* table : SupportedFactories()) {
      TestArray result(DType::kBF16, {5}, {0}, 2, random, true);
      RunKernel(*table, Fields(ReduceKind::kSum, RegisterType::kF32, 1),
                {5, size}, {&operand}, {&result}, threads);
      const float exact = static_cast<float>(size);
      uint32_t bits;
      std::memcpy(&bits, &exact, sizeof bits);
      const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(result.At<uint16_t>({i, 0}), rounded) << size;
      }
    }
  }
}

// An operand without elements may also have no storage.
TEST(ReduceTest, ReadsNothingOfAnEmptySpace) {
  std::mt19937 random(12);
  ThreadPool threads(1);
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kGeneral}) {
    TestArray result(DType::kF32, {3}, {0}, 2, random, false);
    program::Reduce fields = Fields(kind, RegisterType::kF32, 1);
    fields.combine = Load(RegisterType::kF32, 0);
    fields.combine_outputs = {0};
    fields.init.assign(8, '\0');
    Operand nothing;
    nothing.view.dtype = DType::kF32;
    nothing.view.item_size = 4;
    nothing.dims = {-1, -1};
    result.operand().view.base = 1;
    const program::Execute step;
    const ComputeSet set = {step, {3, 0}, {nothing}, {result.operand()}};
    char* const bases[] = {nullptr, result.data()};
    for (const Factories* table : SupportedFactories()) {
      const KernelOr kernel = table->kernel(set, {fields});
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      (*kernel)->Run(Memory{bases}, threads);
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(result.At<float>({i, 0}), 0);
      }
    }
  }
}

TEST(ReduceTest, RefusesWhatItCannotRun) {
  std::mt19937 random(12);
  TestArray operand(DType::kF32, {2, 2}, {0, 1}, 2, random, false);
  TestArray result(DType::kF32, {2}, {0}, 2, random, false);
  const program::Execute step;
  const ComputeSet set = {
      step, {2, 2}, {operand.operand()}, {result.operand()}};
  const auto make = [](const ComputeSet& set, const program::Reduce& fields) {
    return avx2::Table().kernel(set, {fields});
  };
  EXPECT_TRUE(make(set, Fields(ReduceKind::kSum, RegisterType::kF32, 1)).ok());
  EXPECT_FALSE(make(set, Fields(ReduceKind::kSum, RegisterType::kF32, 3)).ok());
  EXPECT_FALSE(make(set, Fields(ReduceKind::kAnd, RegisterType::kF32, 1)).ok());
  // ARGMAX needs two results, a value and an index.
  EXPECT_FALSE(
      make(set, Fields(ReduceKind::kArgmax, RegisterType::kF32, 1)).ok());
  EXPECT_FALSE(
      make(set, Fields(ReduceKind::kGeneral, RegisterType::kF32, 1)).ok());
}

}  // namespace
}  // namespace ipu::model
