// Compares Scatter with its definition, element by element, for both
// instruction sets.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/windows_test_util.h"

namespace ipu::model {
namespace {

using program::ReduceKind;

template <typename T, typename Index = int32_t, typename Combine>
void CheckScatter(Case c, DType dtype, ReduceKind kind, Combine combine,
                  std::mt19937& random, DType index_dtype = DType::kI32,
                  int64_t wrap = 0) {
  c.fields.kind = static_cast<uint8_t>(kind);
  const std::vector<T> old = RandomValues<T>(random, Count(c.operand));
  std::vector<T> updates = RandomValues<T>(random, Count(c.shape));
  std::vector<Index> indices = IndicesAs<Index>(c);
  const program::Execute step;
  ComputeSet set{
      step,
      c.shape,
      {Dense(0, index_dtype, c.index_shape, c.index_dims),
       Dense(1, dtype, c.other_shape, c.other_dims)},
      {Dense(2, dtype, c.operand, std::vector<int32_t>(c.shape.size(), -1))}};
  set.operands[0].index_wrap = wrap;
  Wrap<Index>(c, wrap);
  std::vector<T> expected = old;
  for (int64_t i = 0; i < Count(c.shape); ++i) {
    const std::vector<int64_t> index = IndexAt(i, c.shape);
    const int64_t at = Locate(c, index, /*clamp=*/false);
    if (at < 0) continue;
    expected[at] =
        combine(expected[at], updates[PositionAt(set.operands[1], index)]);
  }
  const auto check = [&](std::vector<Index>& read) {
    for (int count : {1, 2, 3}) {
      ThreadPool threads(count);
      for (const Factories* table : SupportedFactories()) {
        std::vector<T> result = old;
        char* bases[] = {Bytes(read), Bytes(updates), Bytes(result)};
        KernelOr kernel = table->kernel(set, {c.fields});
        ASSERT_TRUE(kernel.ok()) << kernel.status().message();
        if (*kernel) (*kernel)->Run(Memory{bases}, threads);
        ASSERT_EQ(result, expected) << "kind " << int(c.fields.kind);
        if (*kernel == nullptr) continue;
        result = old;
        if (RunInLoop(*table, **kernel, Memory{bases})) {
          ASSERT_EQ(result, expected) << "in a loop";
        } else {
          EXPECT_GT(Count(c.shape), 128);
        }
      }
    }
  };
  check(indices);
  if (c.fields.start_index_map.size() < 2) return;
  std::vector<Index> planes;
  std::vector<Operand> arrays =
      IndexArrays(c, set.operands[0], indices, planes);
  arrays.push_back(set.operands[1]);
  set.operands = std::move(arrays);
  check(planes);
}

TEST(Scatter, RandomCases) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(random, 12, 9);
    CheckScatter<float>(
        c, DType::kF32, ReduceKind::kSet, [](float, float b) { return b; },
        random);
    CheckScatter<float>(
        c, DType::kF32, ReduceKind::kSum,
        [](float a, float b) { return a + b; }, random);
    CheckScatter<double>(
        c, DType::kF64, ReduceKind::kProduct,
        [](double a, double b) { return a * b; }, random);
    CheckScatter<int8_t>(
        c, DType::kI8, ReduceKind::kSum,
        [](int8_t a, int8_t b) { return int8_t(a + b); }, random);
    CheckScatter<uint32_t>(
        c, DType::kU32, ReduceKind::kMax,
        [](uint32_t a, uint32_t b) { return std::max(a, b); }, random);
    CheckScatter<int64_t>(
        c, DType::kI64, ReduceKind::kMin,
        [](int64_t a, int64_t b) { return std::min(a, b); }, random);
    CheckScatter<uint16_t>(
        c, DType::kU16, ReduceKind::kXor,
        [](uint16_t a, uint16_t b) { return uint16_t(a ^ b); }, random);
  }
}

// Large enough for threads to divide columns or elements. Sums of floats reveal
// whether the order of updates is preserved.
TEST(Scatter, ManyWindows) {
  std::mt19937 random(4);
  for (int i = 0; i < 12; ++i) {
    CheckScatter<float>(
        RandomCase(random, 120, 12), DType::kF32, ReduceKind::kSum,
        [](float a, float b) { return a + b; }, random);
  }
}

TEST(Scatter, Points) {
  std::mt19937 random(8);
  const auto sum = [](auto a, auto b) { return decltype(a)(a + b); };
  const auto set = [](auto, auto b) { return b; };
  for (const std::vector<int64_t>& operand :
       std::vector<std::vector<int64_t>>{{1}, {7}, {300}, {9, 11}, {4, 5, 6}}) {
    for (int64_t count : {1, 2, 7, 8, 15, 16, 17, 33, 130, 256, 257, 600}) {
      const Case c = Points(random, count, operand);
      CheckScatter<float>(c, DType::kF32, ReduceKind::kSum, sum, random);
      CheckScatter<float, uint8_t>(c, DType::kF32, ReduceKind::kSet, set,
                                   random, DType::kU8);
      CheckScatter<int32_t, int16_t>(c, DType::kI32, ReduceKind::kSum, sum,
                                     random, DType::kI16);
      CheckScatter<int8_t, uint32_t>(c, DType::kI8, ReduceKind::kSum, sum,
                                     random, DType::kU32);
      CheckScatter<double, int64_t>(c, DType::kF64, ReduceKind::kSum, sum,
                                    random, DType::kI64);
      CheckScatter<double, uint64_t>(c, DType::kF64, ReduceKind::kSet, set,
                                     random, DType::kU64);
    }
  }
}

// `count` rows of `columns` elements (0: single elements) of an operand with
// `rows` rows. `updates`: each row has its own update; otherwise all share one.
Case Rows(std::mt19937& random, int64_t count, int64_t rows, int64_t columns,
          bool updates) {
  Case c;
  c.shape = {count};
  c.operand = {rows};
  c.fields.num_batch_dims = 1;
  c.fields.start_index_map = {0};
  c.fields.window_sizes = {1};
  c.fields.window_dims = {-1};
  if (columns > 0) {
    c.shape.push_back(columns);
    c.operand.push_back(columns);
    c.fields.window_sizes.push_back(columns);
    c.fields.window_dims.push_back(0);
  }
  c.fields.batch_dims.assign(c.operand.size(), -1);
  c.index_shape = {count, 1};
  c.index_dims = {0};
  c.index_dims.resize(c.shape.size(), -1);
  for (int64_t i = 0; i < count; ++i) {
    c.indices.push_back(static_cast<int32_t>(random() % (rows + 2)) - 1);
  }
  c.other_dims.assign(c.shape.size(), -1);
  for (size_t d = updates ? 0 : 1; d < c.shape.size(); ++d) {
    c.other_dims[d] = static_cast<int32_t>(c.other_shape.size());
    c.other_shape.push_back(c.shape[d]);
  }
  return c;
}

// Few rows, and so many that they do not stay in the cache without prefetches.
TEST(Scatter, ShortRows) {
  std::mt19937 random(6);
  for (const int64_t rows : {3, 40'000}) {
    for (const int64_t columns : {0, 1, 2, 3, 7, 8, 9, 40}) {
      for (const bool updates : {false, true}) {
        const Case c = Rows(random, 5000, rows, columns, updates);
        CheckScatter<float>(
            c, DType::kF32, ReduceKind::kSum,
            [](float a, float b) { return a + b; }, random);
        CheckScatter<int32_t>(
            c, DType::kI32, ReduceKind::kSum,
            [](int32_t a, int32_t b) { return a + b; }, random);
        CheckScatter<uint8_t>(
            c, DType::kU8, ReduceKind::kMax,
            [](uint8_t a, uint8_t b) { return std::max(a, b); }, random);
      }
    }
  }
}

// Rows whose indices have other types, around the number of windows that are
// located at a time.
TEST(Scatter, RowsAtIndicesOfAllTypes) {
  std::mt19937 random(8);
  const auto sum = [](float a, float b) { return a + b; };
  const auto set = [](uint16_t, uint16_t b) { return b; };
  for (const int64_t count : {1, 7, 8, 9, 255, 256, 257, 600}) {
    for (const int64_t columns : {1, 3, 16, 130}) {
      const Case c = Rows(random, count, 100, columns, /*updates=*/true);
      CheckScatter<float, int8_t>(c, DType::kF32, ReduceKind::kSum, sum, random,
                                  DType::kI8);
      CheckScatter<float, uint8_t>(c, DType::kF32, ReduceKind::kSum, sum,
                                   random, DType::kU8);
      CheckScatter<float, uint32_t>(c, DType::kF32, ReduceKind::kSum, sum,
                                    random, DType::kU32);
      CheckScatter<uint16_t, int16_t>(c, DType::kU16, ReduceKind::kSet, set,
                                      random, DType::kI16);
      CheckScatter<uint16_t, int64_t>(c, DType::kU16, ReduceKind::kSet, set,
                                      random, DType::kI64);
      CheckScatter<uint16_t, uint64_t>(c, DType::kU16, ReduceKind::kSet, set,
                                       random, DType::kU64);
    }
  }
}

// Windows that overlap at different columns, which threads must not divide.
TEST(Scatter, LongWindowsThatOverlap) {
  std::mt19937 random(5);
  for (const bool rows : {false, true}) {
    Case c;  // 60 windows of 4000 elements, or of 40 whole rows
    c.shape = rows ? std::vector<int64_t>{60, 40, 100}
                   : std::vector<int64_t>{60, 4000};
    c.operand =
        rows ? std::vector<int64_t>{60, 100} : std::vector<int64_t>{6000};
    c.fields.num_batch_dims = 1;
    c.fields.start_index_map = {0};
    c.fields.window_sizes = {c.shape.begin() + 1, c.shape.end()};
    c.fields.batch_dims.assign(c.operand.size(), -1);
    c.fields.window_dims = {0};
    if (rows) c.fields.window_dims.push_back(1);
    c.index_shape = {60, 1};
    c.index_dims.assign(c.shape.size(), -1);
    c.index_dims[0] = 0;
    for (int i = 0; i < 60; ++i) {
      c.indices.push_back(static_cast<int32_t>(random() % (rows ? 21 : 2001)));
    }
    c.other_shape = c.shape;
    for (size_t d = 0; d < c.shape.size(); ++d) {
      c.other_dims.push_back(static_cast<int32_t>(d));
    }
    CheckScatter<float>(
        c, DType::kF32, ReduceKind::kSet, [](float, float b) { return b; },
        random);
  }
}

// The extreme of elements, of which NaN is more than any number.
template <typename T>
void CheckExtremes(DType dtype, std::mt19937& random) {
  using Limits = std::numeric_limits<T>;
  const T special[] = {T{0},
                       -T{0},
                       T{1},
                       -T{3},
                       Limits::denorm_min(),
                       -Limits::denorm_min(),
                       Limits::infinity(),
                       -Limits::infinity(),
                       Limits::max(),
                       Limits::quiet_NaN(),
                       -Limits::quiet_NaN()};
  constexpr int64_t kEntries = 40;
  for (const ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
    for (int64_t count = 0; count <= 130; ++count) {
      Case c = Points(random, std::max<int64_t>(count, 1), {kEntries});
      c.fields.kind = static_cast<uint8_t>(kind);
      const program::Execute step;
      const ComputeSet set{step,
                           c.shape,
                           {Dense(0, DType::kI32, c.index_shape, c.index_dims),
                            Dense(1, dtype, c.other_shape, c.other_dims)},
                           {Dense(2, dtype, c.operand, {-1})}};
      std::vector<T> old(kEntries), updates(c.shape[0]);
      for (T& x : old) x = special[random() % std::size(special)];
      for (T& x : updates) x = special[random() % std::size(special)];
      std::vector<T> expected = old;
      for (int64_t i = 0; i < c.shape[0]; ++i) {
        const int64_t at = Locate(c, {i}, /*clamp=*/false);
        if (at < 0) continue;
        T& x = expected[at];
        const T y = updates[i];
        const bool takes = kind == ReduceKind::kMax ? y > x : y < x;
        if (x == x && (takes || y != y)) x = y;
      }
      for (const Factories* table : SupportedFactories()) {
        std::vector<T> result = old;
        char* bases[] = {Bytes(c.indices), Bytes(updates), Bytes(result)};
        const KernelOr kernel = table->kernel(set, {c.fields});
        ASSERT_TRUE(kernel.ok()) << kernel.status().message();
        ThreadPool threads(1);
        (*kernel)->Run(Memory{bases}, threads);
        for (int64_t k = 0; k < kEntries; ++k) {
          if (expected[k] != expected[k]) {
            EXPECT_NE(result[k], result[k]);
          } else {  // zeros may have either sign
            EXPECT_EQ(result[k], expected[k]);
          }
        }
      }
    }
  }
}

TEST(Scatter, ExtremesOfSpecialNumbers) {
  std::mt19937 random(9);
  CheckExtremes<float>(DType::kF32, random);
  CheckExtremes<double>(DType::kF64, random);
}

// Negative indices to which the kernel adds a number itself.
TEST(Scatter, WrapsNegativeIndices) {
  std::mt19937 random(7);
  const auto sum = [](float a, float b) { return a + b; };
  for (int64_t count : {1, 16, 17, 130, 600}) {
    Case c = Points(random, count, {9, 11});
    for (int32_t& i : c.indices) i -= 8;
    CheckScatter<float>(c, DType::kF32, ReduceKind::kSum, sum, random,
                        DType::kI32, /*wrap=*/9);
    CheckScatter<float, int64_t>(c, DType::kF32, ReduceKind::kSum, sum, random,
                                 DType::kI64, 9);
  }
  for (int i = 0; i < 100; ++i) {
    Case c = RandomCase(random, 12, 9);
    for (int32_t& i : c.indices) i -= 4;
    CheckScatter<float>(c, DType::kF32, ReduceKind::kSum, sum, random,
                        DType::kI32, 5);
  }
}

}  // namespace
}  // namespace ipu::model
