// Compares Sort with std::stable_sort, for both instruction sets.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/windows_test_util.h"

namespace ipu::model {
namespace {

// Sorts rows of values, with and without their indices, and compares.
template <typename T>
void CheckSort(DType dtype, int64_t rows, int64_t n, int64_t keep,
               bool descending, const std::vector<T>& values) {
  std::vector<int32_t> numbers(rows * n);
  std::vector<T> expected;
  std::vector<int32_t> order;
  for (int64_t r = 0; r < rows; ++r) {
    std::iota(numbers.begin() + r * n, numbers.begin() + (r + 1) * n, 0);
    std::vector<int32_t> row(n);
    std::iota(row.begin(), row.end(), 0);
    const T* at = values.data() + r * n;
    std::stable_sort(row.begin(), row.end(), [&](int32_t a, int32_t b) {
      return descending ? at[a] > at[b] : at[a] < at[b];
    });
    for (int64_t i = 0; i < keep; ++i) {
      expected.push_back(at[row[i]]);
      order.push_back(row[i]);
    }
  }
  program::Sort fields;
  fields.keys = {{0, descending, 1, 1}};
  fields.compare_output = 0;
  fields.keep = keep;
  const program::Execute step;
  for (const bool alone : {true, false}) {
    ComputeSet set{step,
                   {rows, n},
                   {Dense(0, dtype, {rows, n}, {0, 1})},
                   {Dense(2, dtype, {rows, keep}, {0, -1})}};
    if (!alone) {
      set.operands.push_back(Dense(1, DType::kI32, {rows, n}, {0, 1}));
      set.results.push_back(Dense(3, DType::kI32, {rows, keep}, {0, -1}));
    }
    for (const Factories* table : SupportedFactories()) {
      for (int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        std::vector<T> input = values;
        std::vector<T> result(rows * keep);
        std::vector<int32_t> places(rows * keep);
        char* bases[] = {Bytes(input), Bytes(numbers), Bytes(result),
                         Bytes(places)};
        KernelOr kernel = table->kernel(set, {fields});
        ASSERT_TRUE(kernel.ok()) << kernel.status().message();
        (*kernel)->Run(Memory{bases}, pool);
        ASSERT_EQ(result, expected) << rows << " rows of " << n;
        if (!alone) {
          ASSERT_EQ(places, order);
        }
      }
    }
  }
}

template <typename T>
std::vector<T> Numbers(std::mt19937& random, int64_t n, double spread) {
  std::vector<T> values(n);
  std::uniform_real_distribution<double> draw(std::is_signed_v<T> ? -spread : 0,
                                              spread);
  for (T& value : values) value = static_cast<T>(draw(random));
  return values;
}

template <typename T>
void CheckSizes(DType dtype) {
  std::mt19937 random(Number(dtype));
  const double largest = std::min<double>(
      static_cast<double>(std::numeric_limits<T>::max() / 2), 1 << 30);
  for (const int64_t n : {1, 2, 100, 192, 193, 5000, 70'000}) {
    for (const int64_t rows : {1, 3}) {
      for (const double spread : {5.0, largest}) {
        const auto values = Numbers<T>(random, rows * n, spread);
        CheckSort(dtype, rows, n, n, n % 2 == 0, values);
        CheckSort(dtype, rows, n, std::min<int64_t>(n, 20), n % 2 != 0, values);
      }
    }
  }
}

TEST(Sort, AnyType) {
  CheckSizes<int8_t>(DType::kI8);
  CheckSizes<uint16_t>(DType::kU16);
  CheckSizes<int32_t>(DType::kI32);
  CheckSizes<float>(DType::kF32);
  CheckSizes<int64_t>(DType::kI64);
  CheckSizes<double>(DType::kF64);
}

template <typename T>
void CheckShortRows(DType dtype) {
  std::mt19937 random(Number(dtype));
  for (const int64_t n : {2, 3, 7, 10, 16, 33, 64, 100, 1000, 1025}) {
    for (const int64_t rows : {16, 17, 47}) {
      auto values = Numbers<T>(random, rows * n, n % 2 == 0 ? 5.0 : 100.0);
      // Zeros of both signs are equal, so that keys do not tell elements.
      if (rows == 47) values[n] = T{} * T(-1);
      for (const int64_t keep : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7},
                                 int64_t{8}, n / 2, n}) {
        if (keep > n) continue;
        CheckSort(dtype, rows, n, keep, keep % 2 == 0, values);
      }
    }
  }
}

TEST(Sort, ManyShortRows) {
  CheckShortRows<int8_t>(DType::kI8);
  CheckShortRows<float>(DType::kF32);
  CheckShortRows<double>(DType::kF64);
}

TEST(Sort, TopElementsOfSortedRows) {
  std::vector<int32_t> values(100'000);
  std::iota(values.begin(), values.end(), -50'000);
  CheckSort(DType::kI32, 1, 100'000, 500, true, values);
  CheckSort(DType::kI32, 1, 100'000, 500, false, values);
  std::fill(values.begin(), values.end(), std::numeric_limits<int32_t>::max());
  CheckSort(DType::kI32, 1, 100'000, 500, false, values);
}

TEST(Sort, FieldsThatDoNotFitAreRefused) {
  const program::Execute step;
  const ComputeSet good{step,
                        {4, 3},
                        {Dense(0, DType::kF32, {4, 3}, {0, 1})},
                        {Dense(1, DType::kF32, {4, 2}, {0, -1})}};
  program::Sort fields;
  fields.keys = {{0, 0, 0, 0}};
  fields.compare_output = 0;
  fields.keep = 2;
  const auto refused = [&](auto change) {
    ComputeSet set = good;
    program::Sort changed = fields;
    change(set, changed);
    return !SupportedFactories()[0]->kernel(set, {changed}).ok();
  };
  EXPECT_FALSE(refused([](ComputeSet&, program::Sort&) {}));
  EXPECT_TRUE(refused([](auto&, auto& f) { f.keep = 3; }));
  EXPECT_TRUE(refused([](auto&, auto& f) { f.keep = -1; }));
  EXPECT_TRUE(refused([](auto&, auto& f) { f.keys[0].operand = 1; }));
  EXPECT_TRUE(refused([](auto&, auto& f) { f.keys.clear(); }));
  EXPECT_TRUE(refused([](auto& s, auto&) { s.results.clear(); }));
  EXPECT_TRUE(
      refused([](auto& s, auto&) { s.results[0].view.dtype = DType::kI32; }));
  EXPECT_TRUE(
      refused([](auto& s, auto&) { s.operands[0].view.dtype = DType{99}; }));
}

}  // namespace
}  // namespace ipu::model
