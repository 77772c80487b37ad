// Compares matrix products with three nested loops, for both instruction sets.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/kernel_test_util.h"

namespace ipu::model {
namespace {

struct Size {
  int64_t b, m, n, k;
};

// A product with one dimension for each of b, m, n and k.
program::Dot DotOf(DType accumulate_dtype) {
  program::Dot fields;
  fields.accumulate_dtype = accumulate_dtype;
  fields.num_batch = fields.num_rows = fields.num_columns = 1;
  return fields;
}

// Multiplies random matrices of element type T into Result and compares with
// sums in Exact. With `adds`, sums start from what the result holds.
template <typename T, typename Result, typename Exact>
void Check(Size size, DType dtype, DType result_dtype, bool shuffle,
           std::mt19937& random, bool adds = false) {
  SCOPED_TRACE(testing::Message()
               << "b " << size.b << " m " << size.m << " n " << size.n << " k "
               << size.k << " dtype " << int{Number(dtype)} << " shuffled "
               << shuffle << " adds " << adds);
  const std::vector<int64_t> shape = {size.b, size.m, size.n, size.k};
  TestArray lhs(dtype, {size.b, size.m, size.k}, {0, 1, 3}, 4, random, shuffle);
  TestArray rhs(dtype, {size.b, size.k, size.n}, {0, 3, 2}, 4, random, shuffle);
  const auto draw = [&] {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(std::normal_distribution<double>()(random));
    } else {
      return static_cast<T>(random());
    }
  };
  ForEachIndex({size.b, size.m, 1, size.k},
               [&](const auto& i) { lhs.At<T>(i) = draw(); });
  ForEachIndex({size.b, 1, size.n, size.k},
               [&](const auto& i) { rhs.At<T>(i) = draw(); });
  program::Dot fields = DotOf(result_dtype);
  fields.adds = adds;
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    TestArray result(result_dtype, {size.b, size.m, size.n}, {0, 1, 2}, 4,
                     random, shuffle);
    const auto before = [&size](const auto& i) {
      return static_cast<Result>((i[0] * size.m + i[1]) * 7 + i[2] * 3 + 1);
    };
    if (adds) {
      ForEachIndex({size.b, size.m, size.n, 1},
                   [&](const auto& i) { result.At<Result>(i) = before(i); });
    }
    RunKernel(*table, fields, shape, {&lhs, &rhs}, {&result}, threads);
    EXPECT_TRUE(result.GapsIntact());
    ForEachIndex({size.b, size.m, size.n, 1}, [&](std::vector<int64_t> i) {
      Exact sum = adds ? before(i) : Result{0};
      double magnitude = static_cast<double>(sum);
      for (int64_t k = 0; k < size.k; ++k) {
        i[3] = k;
        const Exact product = Exact(lhs.At<T>(i)) * Exact(rhs.At<T>(i));
        sum += product;
        if (std::is_floating_point_v<T>) {
          magnitude += std::abs(static_cast<double>(product));
        }
      }
      i[3] = 0;
      const Result got = result.At<Result>(i);
      if constexpr (std::is_floating_point_v<Result>) {
        const double bound = magnitude *
                             std::numeric_limits<Result>::epsilon() *
                             (2 + std::sqrt(size.k));
        ASSERT_NEAR(got, static_cast<double>(sum), bound);
      } else {
        ASSERT_EQ(got, static_cast<Result>(sum));
      }
    });
  }
}

// Partial tiles, vectors and blocks; vectors, outer products, empty products.
const Size kSizes[] = {
    {1, 1, 1, 1},    {1, 5, 7, 0},     {0, 3, 3, 3},      {2, 0, 3, 4},
    {1, 14, 32, 17}, {1, 15, 33, 64},  {3, 6, 16, 9},     {1, 29, 70, 400},
    {1, 1, 50, 77},  {1, 50, 1, 77},   {1, 300, 200, 1},  {40, 8, 8, 8},
    {1, 1, 1, 5000}, {1, 3, 5, 9000},  {1, 130, 150, 90}, {2, 100, 10, 300},
    {3, 64, 64, 64}, {1, 13, 24, 700}, {1, 20, 300, 330},
};

TEST(DotTest, F32) {
  std::mt19937 random(0);
  for (const Size& size : kSizes) {
    for (bool shuffle : {false, true}) {
      Check<float, float, double>(size, DType::kF32, DType::kF32, shuffle,
                                  random);
    }
  }
}

TEST(DotTest, F64) {
  std::mt19937 random(1);
  for (const Size& size : kSizes) {
    for (bool shuffle : {false, true}) {
      Check<double, double, long double>(size, DType::kF64, DType::kF64,
                                         shuffle, random);
    }
  }
}

TEST(DotTest, IntegersWrapAround) {
  std::mt19937 random(2);
  for (const Size& size : kSizes) {
    for (bool shuffle : {false, true}) {
      Check<int8_t, int32_t, uint64_t>(size, DType::kI8, DType::kI32, shuffle,
                                       random);
      Check<uint8_t, uint8_t, uint64_t>(size, DType::kU8, DType::kU8, shuffle,
                                        random);
      Check<int16_t, int32_t, uint64_t>(size, DType::kI16, DType::kI32, shuffle,
                                        random);
      Check<uint16_t, int32_t, uint64_t>(size, DType::kU16, DType::kI32,
                                         shuffle, random);
      Check<int64_t, int64_t, uint64_t>(size, DType::kI64, DType::kI64, shuffle,
                                        random);
      Check<int32_t, int64_t, uint64_t>(size, DType::kI32, DType::kI64, shuffle,
                                        random);
    }
  }
}

TEST(DotTest, ExtremesOfShortIntegers) {
  // The sum of two such products does not fit into a signed 32-bit integer.
  for (int64_t k : {1, 2, 7, 600}) {
    std::mt19937 random(9);
    TestArray lhs(DType::kI16, {1, 20, k}, {0, 1, 3}, 4, random, false);
    TestArray rhs(DType::kI16, {1, k, 40}, {0, 3, 2}, 4, random, false);
    ForEachIndex({1, 20, 1, k},
                 [&](const auto& i) { lhs.At<int16_t>(i) = -32768; });
    ForEachIndex({1, 1, 40, k},
                 [&](const auto& i) { rhs.At<int16_t>(i) = -32768; });
    ThreadPool threads(1);
    for (const Factories* table : SupportedFactories()) {
      TestArray result(DType::kI32, {1, 20, 40}, {0, 1, 2}, 4, random, false);
      RunKernel(*table, DotOf(DType::kI32), {1, 20, 40, k}, {&lhs, &rhs},
                {&result}, threads);
      ForEachIndex({1, 20, 40, 1}, [&](const auto& i) {
        ASSERT_EQ(result.At<uint32_t>(i), static_cast<uint32_t>(k) << 30);
      });
    }
  }
}

TEST(DotTest, RandomLayoutsOfF32) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto draw = [&](int most) { return int64_t(random() % most) + 1; };
    const Size size = {draw(3), draw(60), draw(80), draw(90)};
    Check<float, float, double>(size, DType::kF32, DType::kF32, true, random);
  }
}

// Products of a few elements, which vectors hold next to each other, and of
// many rows of a few terms.
TEST(DotTest, ManySmallProducts) {
  std::mt19937 random(10);
  std::vector<Size> sizes;
  for (int64_t count : {8, 17, 63, 64, 65, 130}) {
    for (int64_t k = 1; k <= 9; ++k) sizes.push_back({count, 1, 1, k});
    for (const Size& s : {Size{0, 3, 3, 3},
                          {0, 3, 1, 3},
                          {0, 1, 3, 3},
                          {0, 2, 2, 2},
                          {0, 4, 4, 4},
                          {0, 2, 5, 3},
                          {0, 3, 2, 5},
                          {0, 1, 8, 5},
                          {0, 7, 1, 4}}) {
      sizes.push_back({count, s.m, s.n, s.k});
    }
    for (int64_t k = 1; k <= 5; ++k) {
      sizes.push_back({1, count, 1, k});
      sizes.push_back({1, 1, count, k});
    }
  }
  for (const Size& size : sizes) {
    for (const bool shuffle : {false, true}) {
      for (const bool adds : {false, true}) {
        Check<float, float, double>(size, DType::kF32, DType::kF32, shuffle,
                                    random, adds);
        Check<double, double, long double>(size, DType::kF64, DType::kF64,
                                           shuffle, random, adds);
        Check<int32_t, int32_t, uint64_t>(size, DType::kI32, DType::kI32,
                                          shuffle, random, adds);
        Check<int64_t, int64_t, uint64_t>(size, DType::kI64, DType::kI64,
                                          shuffle, random, adds);
        Check<int8_t, int32_t, uint64_t>(size, DType::kI8, DType::kI32, shuffle,
                                         random, adds);
      }
    }
  }
}

// Rows of two dimensions and columns of two, in any order in memory: results in
// runs of a few, and batches that are innermost.
template <typename T, typename Result>
void CheckTensors(DType dtype, DType result_dtype, std::mt19937& random) {
  const auto draw_extent = [&](int most) {
    return int64_t(random() % most) + 1;
  };
  const int64_t b = draw_extent(20), m1 = draw_extent(12), m2 = draw_extent(12),
                n1 = draw_extent(12), n2 = draw_extent(12), k = draw_extent(9);
  const std::vector<int64_t> shape = {b, m1, m2, n1, n2, k};
  SCOPED_TRACE(testing::Message()
               << "b " << b << " m " << m1 << " " << m2 << " n " << n1 << " "
               << n2 << " k " << k << " dtype " << int{Number(dtype)});
  TestArray lhs(dtype, {b, m1, m2, k}, {0, 1, 2, 5}, 6, random, true);
  TestArray rhs(dtype, {b, n1, n2, k}, {0, 3, 4, 5}, 6, random, true);
  const auto draw = [&] { return static_cast<T>(int(random() % 16) - 8); };
  ForEachIndex({b, m1, m2, 1, 1, k},
               [&](const auto& i) { lhs.At<T>(i) = draw(); });
  ForEachIndex({b, 1, 1, n1, n2, k},
               [&](const auto& i) { rhs.At<T>(i) = draw(); });
  // The result's dimensions in a random order, without gaps.
  std::vector<int32_t> order = {0, 1, 2, 3, 4};
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> extents;
  for (int32_t d : order) extents.push_back(shape[d]);
  program::Dot fields = DotOf(result_dtype);
  fields.num_rows = fields.num_columns = 2;
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    for (const bool adds : {false, true}) {
      fields.adds = adds;
      TestArray result(result_dtype, extents, order, 6, random, false);
      const std::vector<int64_t> results = {b, m1, m2, n1, n2, 1};
      ForEachIndex(results, [&](const auto& i) { result.At<Result>(i) = 3; });
      RunKernel(*table, fields, shape, {&lhs, &rhs}, {&result}, threads);
      EXPECT_TRUE(result.GapsIntact());
      ForEachIndex(results, [&](std::vector<int64_t> i) {
        Result sum = adds ? 3 : 0;  // exact
        for (i[5] = 0; i[5] < k; ++i[5]) {
          sum += Result(lhs.At<T>(i)) * Result(rhs.At<T>(i));
        }
        i[5] = 0;
        ASSERT_EQ(result.At<Result>(i), sum);
      });
    }
  }
}

TEST(DotTest, TensorsInAnyOrder) {
  std::mt19937 random(12);
  for (int i = 0; i < 20; ++i) {
    CheckTensors<float, float>(DType::kF32, DType::kF32, random);
    CheckTensors<double, double>(DType::kF64, DType::kF64, random);
    CheckTensors<int32_t, int32_t>(DType::kI32, DType::kI32, random);
    CheckTensors<int8_t, int32_t>(DType::kI8, DType::kI32, random);
    CheckTensors<int64_t, int64_t>(DType::kI64, DType::kI64, random);
  }
}

// Few rows, times a matrix that has its terms or its columns next to each
// other, and batches of vectors.
template <typename T>
void CheckRows(Size size, const std::vector<int32_t>& order, DType dtype,
               std::mt19937& random) {
  const auto [b, m, n, k] = size;
  SCOPED_TRACE(testing::Message()
               << "b " << b << " m " << m << " n " << n << " k " << k
               << " dtype " << int{Number(dtype)} << " innermost "
               << order.back());
  const std::vector<int64_t> shape = {b, m, n, k};
  const auto make = [&](int32_t without) {
    std::vector<int32_t> dims;
    std::vector<int64_t> extents;
    for (int32_t d : order) {
      if (d == without) continue;
      dims.push_back(d);
      extents.push_back(shape[d]);
    }
    return TestArray(dtype, extents, dims, 4, random, false);
  };
  TestArray lhs = make(2), rhs = make(1);
  const auto draw = [&] { return static_cast<T>(int(random() % 16) - 8); };
  ForEachIndex({b, m, 1, k}, [&](const auto& i) { lhs.At<T>(i) = draw(); });
  ForEachIndex({b, 1, n, k}, [&](const auto& i) { rhs.At<T>(i) = draw(); });
  program::Dot fields = DotOf(dtype);
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    for (const bool adds : {false, true}) {
      fields.adds = adds;
      TestArray result = make(3);
      ForEachIndex({b, m, n, 1}, [&](const auto& i) { result.At<T>(i) = 5; });
      RunKernel(*table, fields, shape, {&lhs, &rhs}, {&result}, threads);
      EXPECT_TRUE(result.GapsIntact());
      ForEachIndex({b, m, n, 1}, [&](std::vector<int64_t> i) {
        T sum = adds ? 5 : 0;  // exact
        for (i[3] = 0; i[3] < k; ++i[3]) sum += lhs.At<T>(i) * rhs.At<T>(i);
        i[3] = 0;
        ASSERT_EQ(result.At<T>(i), sum);
      });
    }
  }
}

TEST(DotTest, FewRowsAndBatchesOfVectors) {
  std::mt19937 random(13);
  std::vector<Size> sizes;
  // One row: few columns, and dot products of few terms.
  for (int64_t n : {2, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 64, 65, 130}) {
    for (int64_t k : {1, 2, 5, 8, 9, 20, 40, 130})
      sizes.push_back({1, 1, n, k});
  }
  // Rows of many terms.
  for (int64_t m : {2, 3, 4, 5, 8, 9, 13, 16, 17}) {
    for (int64_t n : {1, 2, 3, 10}) sizes.push_back({1, m, n, 32 * m + n});
  }
  sizes.push_back({1, 3, 5, 2100});
  sizes.push_back({2, 16, 9, 515});
  // Batches.
  for (int64_t b : {1, 7, 8, 16, 17, 63, 64, 65, 127, 128, 129, 130, 300}) {
    for (const Size& s :
         {Size{0, 1, 1, 1}, {0, 1, 1, 70}, {0, 1, 5, 30}, {0, 6, 1, 33}}) {
      sizes.push_back({b, s.m, s.n, s.k});
    }
  }
  const std::vector<std::vector<int32_t>> orders = {
      {0, 1, 2, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}, {1, 3, 0, 2}};
  for (const Size& size : sizes) {
    for (const std::vector<int32_t>& order : orders) {
      CheckRows<float>(size, order, DType::kF32, random);
      CheckRows<double>(size, order, DType::kF64, random);
      CheckRows<int32_t>(size, order, DType::kI32, random);
      CheckRows<int64_t>(size, order, DType::kI64, random);
    }
  }
}

// Not a number comes from its own term only, and no other sum has one.
TEST(DotTest, InfinitiesStayInTheirSums) {
  std::mt19937 random(14);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Size& size : {Size{1, 1, 20, 9},
                           {1, 1, 40, 70},
                           {1, 4, 6, 130},
                           {40, 1, 1, 21},
                           {1, 1, 5, 260}}) {
    for (const bool shuffle : {false, true}) {
      const auto [b, m, n, k] = size;
      TestArray lhs(DType::kF32, {b, m, k}, {0, 1, 3}, 4, random, shuffle);
      TestArray rhs(DType::kF32, {b, n, k}, {0, 2, 3}, 4, random, shuffle);
      ForEachIndex({b, m, 1, k}, [&](const auto& i) { lhs.At<float>(i) = 1; });
      ForEachIndex({b, 1, n, k}, [&](const auto& i) { rhs.At<float>(i) = 1; });
      const std::vector<int64_t> last = {b - 1, m - 1, n - 1, k - 1};
      rhs.At<float>(last) = infinity;
      ThreadPool threads(1);
      for (const Factories* table : SupportedFactories()) {
        TestArray result(DType::kF32, {b, m, n}, {0, 1, 2}, 4, random, shuffle);
        RunKernel(*table, DotOf(DType::kF32), {b, m, n, k}, {&lhs, &rhs},
                  {&result}, threads);
        ForEachIndex({b, m, n, 1}, [&](const auto& i) {
          const bool own = i[0] == b - 1 && i[2] == n - 1;
          ASSERT_EQ(result.At<float>(i), own ? infinity : float(k));
        });
      }
    }
  }
}

TEST(DotTest, AddsToWhatTheResultHolds) {
  std::mt19937 random(7);
  for (const Size& size : kSizes) {
    for (bool shuffle : {false, true}) {
      Check<float, float, double>(size, DType::kF32, DType::kF32, shuffle,
                                  random, /*adds=*/true);
      Check<double, double, long double>(size, DType::kF64, DType::kF64,
                                         shuffle, random, /*adds=*/true);
      Check<int32_t, int32_t, uint64_t>(size, DType::kI32, DType::kI32, shuffle,
                                        random, /*adds=*/true);
      Check<uint8_t, uint64_t, uint64_t>(size, DType::kU8, DType::kU64, shuffle,
                                         random, /*adds=*/true);
    }
  }
}

// Products of numbers with few bits: sums are exact in f32, but not in bf16.
TEST(DotTest, HalvesAreSummedInF32AndRoundedOnce) {
  std::mt19937 random(4);
  constexpr int64_t kTerms = 300;
  TestArray lhs(DType::kBF16, {2, kTerms}, {1, 3}, 4, random, false);
  TestArray rhs(DType::kBF16, {3, kTerms}, {2, 3}, 4, random, false);
  constexpr uint16_t kOne = 0x3f80;  // bf16
  ForEachIndex({1, 2, 1, kTerms},
               [&](const auto& i) { lhs.At<uint16_t>(i) = kOne; });
  ForEachIndex({1, 1, 3, kTerms},
               [&](const auto& i) { rhs.At<uint16_t>(i) = kOne; });
  program::Dot fields = DotOf(DType::kF32);
  ThreadPool threads(1);
  for (const Factories* table : SupportedFactories()) {
    TestArray result(DType::kBF16, {2, 3}, {1, 2}, 4, random, true);
    RunKernel(*table, fields, {1, 2, 3, kTerms}, {&lhs, &rhs}, {&result},
              threads);
    ForEachIndex({1, 2, 3, 1}, [&](const auto& i) {
      // A bf16 accumulator would stop at 256.
      EXPECT_EQ(result.At<uint16_t>(i), 0x4396);  // 300
    });
  }
}

TEST(DotTest, BooleansAreOrOfAnds) {
  std::mt19937 random(5);
  constexpr int64_t kTerms = 300;
  TestArray lhs(DType::kBool, {4, kTerms}, {1, 3}, 4, random, true);
  TestArray rhs(DType::kBool, {5, kTerms}, {2, 3}, 4, random, true);
  ForEachIndex({1, 4, 1, kTerms}, [&](const auto& i) {
    lhs.At<bool>(i) = i[1] != 0 && i[3] < 256 + i[1];
  });
  ForEachIndex({1, 1, 5, kTerms}, [&](const auto& i) {
    rhs.At<bool>(i) = i[2] != 0 && i[3] >= i[2] % 2 * 258;
  });
  program::Dot fields = DotOf(DType::kBool);
  ThreadPool threads(1);
  for (const Factories* table : SupportedFactories()) {
    TestArray result(DType::kBool, {4, 5}, {1, 2}, 4, random, true);
    RunKernel(*table, fields, {1, 4, 5, kTerms}, {&lhs, &rhs}, {&result},
              threads);
    ForEachIndex({1, 4, 5, 1}, [&](std::vector<int64_t> i) {
      bool any = false;
      for (i[3] = 0; i[3] < kTerms; ++i[3]) {
        any |= lhs.At<bool>(i) && rhs.At<bool>(i);
      }
      i[3] = 0;
      EXPECT_EQ(result.At<bool>(i), any);
    });
  }
}

// The windows of three elements, with stride two, of a row of kPlaces elements
// with `channels` channels, times a kernel: rows and terms overlap in memory.
TEST(DotTest, WindowsThatOverlap) {
  std::mt19937 random(8);
  constexpr int64_t kRows = 3, kPlaces = 41, kOut = 37;
  for (int64_t channels : {1, 5, 40}) {
    const std::vector<int64_t> shape = {1, kRows, 20, kOut, 3, channels};
    TestArray x(DType::kF32, {kRows, kPlaces, channels}, {1, 2, 5}, 6, random,
                false);
    // Element k of window i is at place 2 i + k.
    x.operand().view.shape = {kRows, 20, 3, channels};
    x.operand().view.strides = {kPlaces * channels, 2 * channels, channels, 1};
    x.operand().dims = {-1, 0, 1, -1, 2, 3};
    TestArray w(DType::kF32, {3, channels, kOut}, {4, 5, 3}, 6, random, true);
    const auto draw = [&](TestArray& array, const std::vector<int64_t>& over) {
      ForEachIndex(over, [&](const auto& i) {
        array.At<float>(i) = static_cast<float>(random() % 16) - 8;
      });
    };
    draw(x, {1, kRows, 20, 1, 3, channels});
    draw(w, {1, 1, 1, kOut, 3, channels});
    program::Dot fields = DotOf(DType::kF32);
    fields.num_rows = 2;
    ThreadPool threads(2);
    for (const Factories* table : SupportedFactories()) {
      // With columns that are not contiguous, too.
      for (bool shuffle : {false, true}) {
        TestArray result(DType::kF32, {kRows, 20, kOut}, {1, 2, 3}, 6, random,
                         shuffle);
        RunKernel(*table, fields, shape, {&x, &w}, {&result}, threads);
        EXPECT_TRUE(result.GapsIntact());
        ForEachIndex({1, kRows, 20, kOut, 1, 1}, [&](std::vector<int64_t> i) {
          float sum = 0;  // exact
          for (i[4] = 0; i[4] < 3; ++i[4]) {
            for (i[5] = 0; i[5] < channels; ++i[5]) {
              sum += x.At<float>(i) * w.At<float>(i);
            }
          }
          i[4] = i[5] = 0;
          ASSERT_EQ(result.At<float>(i), sum);
        });
      }
    }
  }
}

// The 3x3 windows of an image of [places + 2, places + 2, channels], times a
// kernel: the rows of an image's line are one run, and so are the terms of a
// window's line. Sums are exact.
template <typename T>
void CheckImage(DType dtype, int64_t places, int64_t channels, int64_t columns,
                std::mt19937& random) {
  SCOPED_TRACE(testing::Message()
               << "places " << places << " channels " << channels << " columns "
               << columns << " dtype " << int{Number(dtype)});
  const std::vector<int64_t> shape = {1,          places,     places,  columns,
                                      int64_t{3}, int64_t{3}, channels};
  const int64_t line = (places + 2) * channels;
  TestArray x(dtype, {places + 2, places + 2, channels}, {1, 2, 6}, 7, random,
              false);
  x.operand().view.shape = {places, places, 3, 3, channels};
  x.operand().view.strides = {line, channels, line, channels, 1};
  x.operand().dims = {-1, 0, 1, -1, 2, 3, 4};
  TestArray w(dtype, {3, 3, channels, columns}, {4, 5, 6, 3}, 7, random, false);
  const auto draw = [&](TestArray& array, const std::vector<int64_t>& over) {
    ForEachIndex(over, [&](const auto& i) {
      array.At<T>(i) = static_cast<T>(static_cast<int>(random() % 16) - 8);
    });
  };
  draw(x, {1, places, places, 1, 3, 3, channels});
  draw(w, {1, 1, 1, columns, 3, 3, channels});
  const std::vector<int64_t> outer = {1, places, places, columns, 1, 1, 1};
  std::vector<T> expected;
  ForEachIndex(outer, [&](std::vector<int64_t> i) {
    T sum = 0;
    for (i[4] = 0; i[4] < 3; ++i[4]) {
      for (i[5] = 0; i[5] < 3; ++i[5]) {
        for (i[6] = 0; i[6] < channels; ++i[6]) {
          sum += x.At<T>(i) * w.At<T>(i);
        }
      }
    }
    expected.push_back(sum);
  });
  program::Dot fields = DotOf(dtype);
  fields.num_rows = 2;
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    for (bool adds : {false, true}) {
      TestArray result(dtype, {places, places, columns}, {1, 2, 3}, 7, random,
                       false);
      fields.adds = adds;
      ForEachIndex(outer, [&](const auto& i) { result.At<T>(i) = 3; });
      RunKernel(*table, fields, shape, {&x, &w}, {&result}, threads);
      EXPECT_TRUE(result.GapsIntact());
      auto sum = expected.begin();
      ForEachIndex(outer, [&](const auto& i) {
        ASSERT_EQ(result.At<T>(i), *sum++ + (adds ? 3 : 0));
      });
    }
  }
}

TEST(DotTest, WindowsOfImages) {
  std::mt19937 random(11);
  struct Image {
    int64_t places, channels, columns;
  };
  // Lines of 1 to 29 windows. With 40 channels, a window's 360 terms are two
  // blocks, of which the first ends within a line.
  for (const Image& image : {Image{1, 2, 33},
                             {2, 40, 5},
                             {3, 3, 33},
                             {4, 1, 17},
                             {4, 40, 33},
                             {5, 2, 70},
                             {5, 40, 3},
                             {6, 3, 33},
                             {7, 40, 2},
                             {8, 3, 20},
                             {13, 2, 5},
                             {14, 3, 6},
                             {15, 2, 33},
                             {29, 2, 2},
                             {29, 3, 1}}) {
    const auto& [places, channels, columns] = image;
    CheckImage<float>(DType::kF32, places, channels, columns, random);
    CheckImage<double>(DType::kF64, places, channels, columns, random);
    CheckImage<int32_t>(DType::kI32, places, channels, columns, random);
    CheckImage<int64_t>(DType::kI64, places, channels, columns, random);
  }
  CheckImage<float>(DType::kF32, 5, 2, 530, random);
}

// Rows of two dimensions that are in opposite orders in the left operand and in
// the result, as in a Fourier transform of columns.
TEST(DotTest, RowsInAnotherOrderThanTheResults) {
  std::mt19937 random(9);
  for (int64_t inner : {3, 130, 257}) {
    for (int64_t columns : {5, 32, 70}) {
      const std::vector<int64_t> shape = {1, inner, 6, columns, 4, 2};
      // In memory: 4 terms, 6 rows, `inner` rows, 2 terms.
      TestArray x(DType::kF32, {4, 6, inner, 2}, {4, 2, 1, 5}, 6, random,
                  false);
      TestArray w(DType::kF32, {4, 2, columns}, {4, 5, 3}, 6, random, false);
      const auto draw = [&](TestArray& array,
                            const std::vector<int64_t>& over) {
        ForEachIndex(over, [&](const auto& i) {
          array.At<float>(i) = static_cast<float>(random() % 16) - 8;
        });
      };
      draw(x, {1, inner, 6, 1, 4, 2});
      draw(w, {1, 1, 1, columns, 4, 2});
      program::Dot fields = DotOf(DType::kF32);
      fields.num_rows = 2;
      ThreadPool threads(2);
      for (const Factories* table : SupportedFactories()) {
        for (bool adds : {false, true}) {
          TestArray result(DType::kF32, {inner, 6, columns}, {1, 2, 3}, 6,
                           random, false);
          fields.adds = adds;
          ForEachIndex({1, inner, 6, columns, 1, 1},
                       [&](const auto& i) { result.At<float>(i) = 3; });
          RunKernel(*table, fields, shape, {&x, &w}, {&result}, threads);
          EXPECT_TRUE(result.GapsIntact());
          ForEachIndex({1, inner, 6, columns, 1, 1},
                       [&](std::vector<int64_t> i) {
                         float sum = adds ? 3 : 0;  // exact
                         for (i[4] = 0; i[4] < 4; ++i[4]) {
                           for (i[5] = 0; i[5] < 2; ++i[5]) {
                             sum += x.At<float>(i) * w.At<float>(i);
                           }
                         }
                         i[4] = i[5] = 0;
                         ASSERT_EQ(result.At<float>(i), sum);
                       });
        }
      }
    }
  }
}

TEST(DotTest, RefusesWhatItCannotRun) {
  std::mt19937 random(6);
  TestArray floats(DType::kF32, {2, 2}, {1, 3}, 4, random, false);
  TestArray result(DType::kI32, {2, 2}, {1, 2}, 4, random, false);
  const program::Execute step;
  program::Dot fields = DotOf(DType::kI32);
  const ComputeSet set = {step,
                          {1, 2, 2, 2},
                          {floats.operand(), floats.operand()},
                          {result.operand()}};
  EXPECT_FALSE(avx2::Table().kernel(set, {fields}).ok());
  fields.accumulate_dtype = DType::kF32;
  fields.adds = true;
  EXPECT_FALSE(avx2::Table().kernel(set, {fields}).ok());
  const ComputeSet flat = {
      step, {2, 2}, {floats.operand(), floats.operand()}, {result.operand()}};
  EXPECT_FALSE(avx2::Table().kernel(flat, {fields}).ok());
}

}  // namespace
}  // namespace ipu::model
