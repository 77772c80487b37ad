// Products with the matrices of Fourier transforms, as ops/fft.py makes them,
// against the sums that they stand for.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/kernel_test_util.h"

namespace ipu::model {
namespace {

struct Transform {
  int64_t length, planes, terms, out_planes, kept;
  int sign;
  double scale;
};

// Over (rows, columns, planes of the result, kept, planes, terms).
constexpr size_t kRank = 7;

template <typename T>
class Product {
 public:
  // Coefficients lie side by side in the result, or else columns do. With
  // `pairs`, so do real and imaginary parts of all numbers.
  Product(const Transform& t, int64_t columns, bool coefficients_inside,
          std::mt19937& random, bool pairs = false, int64_t rows = 3)
      : t_(t),
        shape_{1, rows, columns, t.out_planes, t.kept, t.planes, t.terms},
        x_(ArrayOf(pairs, {t.planes, rows, t.terms, columns}, {5, 1, 6, 2},
                   random)),
        matrix_(kDtype, {t.planes, t.terms, t.out_planes, t.kept}, {5, 6, 3, 4},
                kRank, random, false),
        multiplied_(matrix_),
        result_(coefficients_inside
                    ? ArrayOf(pairs, {t.out_planes, rows, columns, t.kept},
                              {3, 1, 2, 4}, random)
                    : ArrayOf(pairs, {t.out_planes, rows, t.kept, columns},
                              {3, 1, 4, 2}, random)) {
    ForEachIndex(
        {1, rows, columns, 1, 1, t.planes, t.terms}, [&](const auto& i) {
          x_.template At<T>(i) =
              static_cast<T>(std::normal_distribution<double>()(random));
        });
    ForEachIndex({1, 1, 1, t.out_planes, t.kept, t.planes, t.terms},
                 [&](const auto& i) {
                   const std::complex<double> w =
                       t.scale *
                       std::polar(1.0, t.sign * 2 * std::numbers::pi *
                                           (i[4] * i[6] % t.length) / t.length);
                   const double part = i[3] == i[5] ? w.real() : w.imag();
                   matrix_.template At<T>(i) =
                       static_cast<T>(i[5] > i[3] ? -part : part);
                 });
    multiplied_ = matrix_;
    fields_.accumulate_dtype = kDtype;
    fields_.num_batch = 1;
    fields_.num_rows = fields_.num_columns = 2;
    fields_.fourier = {{.length = static_cast<uint32_t>(t.length),
                        .sign = t.sign,
                        .scale = t.scale,
                        .planes = static_cast<uint8_t>(t.planes),
                        .terms = static_cast<uint32_t>(t.terms),
                        .out_planes = static_cast<uint8_t>(t.out_planes),
                        .kept = static_cast<uint32_t>(t.kept)}};
  }

  TestArray& x() { return x_; }
  // What the kernel gets, and what the expected results are computed from.
  TestArray& matrix() { return matrix_; }
  TestArray& multiplied() { return multiplied_; }
  program::Dot& fields() { return fields_; }
  program::Fourier& fourier() { return fields_.fourier[0]; }

  KernelOr Make(const Factories& table) {
    const program::Execute step;
    return table.kernel(
        {step, shape_, {x_.operand(), matrix_.operand()}, {result_.operand()}},
        {fields_});
  }

  void Check(const Factories& table) {
    ThreadPool threads(2);
    RunKernel(table, fields_, shape_, {&x_, &matrix_}, {&result_}, threads);
    EXPECT_TRUE(result_.GapsIntact());
    const double bound =
        8 * std::numeric_limits<T>::epsilon() * t_.scale * t_.terms;
    ForEachIndex({1, shape_[1], shape_[2], t_.out_planes, t_.kept, 1, 1},
                 [&](std::vector<int64_t> i) {
                   double sum = 0;
                   for (i[5] = 0; i[5] < t_.planes; ++i[5]) {
                     for (i[6] = 0; i[6] < t_.terms; ++i[6]) {
                       sum += double{x_.template At<T>(i)} *
                              double{multiplied_.template At<T>(i)};
                     }
                   }
                   i[5] = i[6] = 0;
                   const double found = result_.template At<T>(i);
                   // A transform has fewer NaNs: it multiplies with no zeros.
                   if (!std::isnan(sum)) {
                     ASSERT_NEAR(found, sum, bound);
                   }
                 });
  }

 private:
  static constexpr DType kDtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;

  // With `pairs`, the first dimension is the innermost in memory.
  static TestArray ArrayOf(bool pairs, std::vector<int64_t> shape,
                           std::vector<int32_t> dims, std::mt19937& random) {
    if (pairs) {
      std::rotate(shape.begin(), shape.begin() + 1, shape.end());
      std::rotate(dims.begin(), dims.begin() + 1, dims.end());
    }
    return TestArray(kDtype, shape, dims, kRank, random, false);
  }

  const Transform t_;
  const std::vector<int64_t> shape_;
  TestArray x_, matrix_, multiplied_, result_;
  program::Dot fields_;
};

template <typename T>
void CheckAll(const Transform& t, std::mt19937& random) {
  SCOPED_TRACE(testing::Message()
               << t.length << ": " << t.planes << " x " << t.terms << " to "
               << t.out_planes << " x " << t.kept << ", sign " << t.sign);
  for (int64_t columns : {1, 5, 18}) {
    for (bool coefficients_inside : {false, true}) {
      Product<T> product(t, columns, coefficients_inside, random);
      for (const Factories* table : SupportedFactories()) product.Check(*table);
    }
  }
}

TEST(DotFourierTest, AllRadices) {
  std::mt19937 random(1);
  for (int64_t n : {8, 9, 11, 16, 22, 25, 32, 40, 49, 61, 64, 113, 128}) {
    for (int sign : {-1, 1}) {
      CheckAll<float>({n, 2, n, 2, n, sign, 1}, random);
      CheckAll<double>({n, 2, n, 2, n, sign, 1}, random);
    }
  }
}

TEST(DotFourierTest, RealNumbers) {
  std::mt19937 random(2);
  for (int64_t n : {8, 15, 20, 50, 64, 120}) {
    for (int sign : {-1, 1}) {
      CheckAll<float>({n, 1, n, 2, n, sign, 0.5}, random);
      CheckAll<double>({n, 1, n, 2, n / 2 + 1, sign, 1}, random);
      CheckAll<float>({n, 2, n / 2 + 1, 1, n, sign, 1.0 / n}, random);
      CheckAll<float>({n, 1, n, 1, n / 2 + 1, sign, 1}, random);
    }
  }
}

TEST(DotFourierTest, PartsOfTransforms) {
  std::mt19937 random(3);
  CheckAll<float>({40, 2, 9, 2, 40, -1, 1}, random);
  CheckAll<float>({40, 2, 40, 2, 7, 1, 3}, random);
  CheckAll<float>({26, 1, 12, 2, 13, -1, 1}, random);
  CheckAll<float>({27, 1, 12, 2, 13, 1, 1}, random);
}

// Terms and coefficients a power of two apart, which are copied many at a time.
TEST(DotFourierTest, VectorsThatCompeteForTheCache) {
  std::mt19937 random(9);
  const auto check = [&]<typename T>(T, const Transform& t, int64_t columns) {
    SCOPED_TRACE(testing::Message() << t.length << " in " << columns);
    for (bool coefficients_inside : {false, true}) {
      Product<T> product(t, columns, coefficients_inside, random);
      for (const Factories* table : SupportedFactories()) product.Check(*table);
    }
  };
  check(float{}, {16, 2, 16, 2, 16, -1, 1}, 1024);
  check(double{}, {16, 2, 16, 2, 16, 1, 1}, 512);
  check(float{}, {16, 1, 16, 2, 16, -1, 1}, 1024);
  check(float{}, {32, 2, 32, 2, 17, 1, 1}, 512);
  check(float{}, {25, 2, 13, 1, 25, 1, 1.0 / 25}, 1024);
  check(double{}, {64, 1, 64, 2, 33, -1, 2}, 128);
  check(float{}, {113, 2, 113, 2, 113, -1, 1}, 128);
}

// Columns that fill a few vectors, but not the last one.
TEST(DotFourierTest, RunsOfFewRows) {
  std::mt19937 random(10);
  for (int64_t columns = 7; columns <= 130; columns += columns < 36 ? 1 : 9) {
    SCOPED_TRACE(columns);
    for (bool coefficients_inside : {false, true}) {
      Product<float> whole({9, 2, 9, 2, 9, 1, 1}, columns, coefficients_inside,
                           random);
      Product<double> part({8, 2, 8, 2, 5, -1, 1}, columns, coefficients_inside,
                           random);
      Product<float> real({10, 1, 10, 1, 10, -1, 0.5}, columns,
                          coefficients_inside, random);
      for (const Factories* table : SupportedFactories()) {
        whole.Check(*table);
        part.Check(*table);
        real.Check(*table);
      }
    }
  }
}

// Real and imaginary parts that alternate, in the data and in the result.
TEST(DotFourierTest, ComplexNumbers) {
  std::mt19937 random(11);
  for (const Transform& t :
       {Transform{16, 2, 16, 2, 16, -1, 1}, Transform{25, 2, 25, 2, 25, 1, 0.5},
        Transform{20, 2, 13, 2, 7, 1, 2}, Transform{32, 1, 32, 2, 32, -1, 1},
        Transform{32, 2, 17, 1, 32, 1, 1.0 / 32},
        Transform{9, 2, 9, 2, 3, -1, 1}}) {
    for (int64_t columns : {1, 3, 8, 16, 21, 64}) {
      SCOPED_TRACE(testing::Message() << t.length << " in " << columns);
      for (bool coefficients_inside : {false, true}) {
        Product<float> f32(t, columns, coefficients_inside, random, true);
        Product<double> f64(t, columns, coefficients_inside, random, true, 5);
        for (const Factories* table : SupportedFactories()) {
          f32.Check(*table);
          f64.Check(*table);
        }
      }
    }
  }
}

// Rows that are transformed one by one, with and without blocks that overlap.
TEST(DotFourierTest, LongRows) {
  std::mt19937 random(12);
  const auto check = [&](const Transform& t, int64_t columns, int64_t rows) {
    SCOPED_TRACE(testing::Message()
                 << t.length << ": " << t.planes << " x " << t.terms << " to "
                 << t.out_planes << " x " << t.kept << ", sign " << t.sign);
    for (bool pairs : {false, true}) {
      Product<float> product(t, columns, true, random, pairs, rows);
      for (const Factories* table : SupportedFactories()) product.Check(*table);
    }
  };
  for (int64_t n : {256, 289, 400}) {
    check({n, 2, n, 2, n, -1, 1}, 1, 2);
    check({n, 2, n, 2, n, 1, 1.0 / n}, 1, 1);
    check({n, 2, n - 9, 2, n / 2, 1, 3}, 5, 1);
    check({n, 1, n, 2, n / 2 + 1, -1, 1}, 1, 2);
    check({n, 1, n - 3, 2, n, 1, 0.5}, 1, 1);
    check({n, 1, n, 1, 7, -1, 2}, 5, 1);
    check({n, 2, n / 2 + 1, 1, n, 1, 1.0 / n}, 1, 2);
    check({n, 2, n, 1, n - 5, -1, 1}, 5, 1);
    check({n, 2, n / 3, 1, n, -1, 1}, 1, 1);
  }
  Product<double> product({256, 2, 256, 2, 256, -1, 1}, 1, true, random);
  for (const Factories* table : SupportedFactories()) product.Check(*table);
}

// Half of the largest number and more.
TEST(DotFourierTest, NothingOverflowsThatFits) {
  std::mt19937 random(6);
  for (int64_t planes : {1, 2}) {
    for (bool coefficients_inside : {false, true}) {
      Product<float> product({16, planes, 16, 2, 16, -1, 1}, 20,
                             coefficients_inside, random);
      ForEachIndex({1, 3, 20, 1, 1, planes, 16}, [&](const auto& i) {
        product.x().At<float>(i) = i[5] + i[6] == 0 ? 3e38f : 0;
      });
      for (const Factories* table : SupportedFactories()) product.Check(*table);
    }
  }
}

// Whatever the matrix is: a program that says what it is is trusted.
TEST(DotFourierTest, TheMatrixIsNotRead) {
  std::mt19937 random(4);
  for (const Factories* table : SupportedFactories()) {
    for (bool coefficients_inside : {false, true}) {
      Product<float> product({25, 2, 25, 2, 25, -1, 1}, 20, coefficients_inside,
                             random);
      ForEachIndex({1, 1, 1, 2, 25, 2, 25}, [&](const auto& i) {
        product.matrix().At<float>(i) = std::numeric_limits<float>::quiet_NaN();
      });
      product.Check(*table);
    }
  }
}

// Products of which nothing is said, or which only take a part of the matrix.
TEST(DotFourierTest, OtherMatricesAreMultiplied) {
  std::mt19937 random(7);
  const auto check = [&](const auto& change) {
    for (const Factories* table : SupportedFactories()) {
      Product<float> product({25, 2, 25, 2, 25, -1, 1}, 20, true, random);
      product.matrix().At<float>({0, 0, 0, 1, 24, 1, 24}) += 0.5f;
      product.multiplied() = product.matrix();
      change(product);
      product.Check(*table);
    }
  };
  check([](Product<float>& p) { p.fields().fourier.clear(); });
  check([](Product<float>& p) {
    p.fourier().length = 26;
    p.fourier().terms = 26;
  });
  check([](Product<float>& p) { p.fourier().kept = 24; });
  check([](Product<float>& p) { p.fourier().out_planes = 1; });
  // Of 25 terms and 50, but of a length that is too large, or prime.
  check([](Product<float>& p) { p.fourier().length = 1 << 21; });
  check([](Product<float>& p) { p.fourier().length = 131; });
  check([](Product<float>& p) { p.fourier().length = ~0u; });
}

TEST(DotFourierTest, RefusesWhatIsNoTransform) {
  std::mt19937 random(8);
  const auto refused = [&](const auto& change) {
    Product<float> product({25, 2, 25, 2, 25, -1, 1}, 20, true, random);
    change(product.fourier());
    return !product.Make(avx2::Table()).ok();
  };
  EXPECT_FALSE(refused([](program::Fourier&) {}));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.length = 24; }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.length = 0; }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.sign = 0; }));
  EXPECT_TRUE(refused([](program::Fourier& f) {
    f.scale = std::numeric_limits<double>::infinity();
  }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.planes = 3; }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.out_planes = 0; }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.terms = 0; }));
  EXPECT_TRUE(refused([](program::Fourier& f) { f.kept = ~0u; }));
}

TEST(DotFourierTest, TheMatrixOfLongRowsIsNotRead) {
  std::mt19937 random(13);
  for (const Factories* table : SupportedFactories()) {
    Product<float> product({256, 2, 256, 2, 256, -1, 1}, 1, true, random);
    ForEachIndex({1, 1, 1, 2, 256, 2, 256}, [&](const auto& i) {
      product.matrix().At<float>(i) = std::numeric_limits<float>::quiet_NaN();
    });
    product.Check(*table);
  }
}

// What is no number in one column is none there alone.
TEST(DotFourierTest, ColumnsAreIndependent) {
  std::mt19937 random(5);
  for (int64_t planes : {1, 2}) {
    for (bool coefficients_inside : {false, true}) {
      Product<float> product({24, planes, 24, 2, 24, -1, 1}, 40,
                             coefficients_inside, random);
      product.x().At<float>({0, 1, 17, 0, 0, 0, 3}) =
          std::numeric_limits<float>::quiet_NaN();
      for (const Factories* table : SupportedFactories()) product.Check(*table);
    }
  }
}

}  // namespace
}  // namespace ipu::model
