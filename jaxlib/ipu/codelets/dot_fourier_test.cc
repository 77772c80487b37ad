// Products with the matrices of Fourier transforms, as ops/fft.py makes them,
// against the sums that they stand for.

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
  // Coefficients lie side by side in the result, or else columns do.
  Product(const Transform& t, int64_t columns, bool coefficients_inside,
          std::mt19937& random)
      : t_(t),
        shape_{1, 3, columns, t.out_planes, t.kept, t.planes, t.terms},
        x_(kDtype, {t.planes, 3, t.terms, columns}, {5, 1, 6, 2}, kRank, random,
           false),
        matrix_(kDtype, {t.planes, t.terms, t.out_planes, t.kept}, {5, 6, 3, 4},
                kRank, random, false),
        result_(kDtype,
                coefficients_inside
                    ? std::vector<int64_t>{t.out_planes, 3, columns, t.kept}
                    : std::vector<int64_t>{t.out_planes, 3, t.kept, columns},
                coefficients_inside ? std::vector<int32_t>{3, 1, 2, 4}
                                    : std::vector<int32_t>{3, 1, 4, 2},
                kRank, random, false) {
    ForEachIndex({1, 3, columns, 1, 1, t.planes, t.terms}, [&](const auto& i) {
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
    matrix_.operand().view.constant = matrix_.data();
  }

  TestArray& x() { return x_; }
  TestArray& matrix() { return matrix_; }

  void Check(const Factories& table) {
    program::Dot fields;
    fields.accumulate_dtype = kDtype;
    fields.num_batch = 1;
    fields.num_rows = fields.num_columns = 2;
    ThreadPool threads(2);
    RunKernel(table, fields, shape_, {&x_, &matrix_}, {&result_}, threads);
    EXPECT_TRUE(result_.GapsIntact());
    const double bound =
        8 * std::numeric_limits<T>::epsilon() * t_.scale * t_.terms;
    ForEachIndex({1, 3, shape_[2], t_.out_planes, t_.kept, 1, 1},
                 [&](std::vector<int64_t> i) {
                   double sum = 0;
                   for (i[5] = 0; i[5] < t_.planes; ++i[5]) {
                     for (i[6] = 0; i[6] < t_.terms; ++i[6]) {
                       sum += double{x_.template At<T>(i)} *
                              double{matrix_.template At<T>(i)};
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

  const Transform t_;
  const std::vector<int64_t> shape_;
  TestArray x_, matrix_, result_;
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
  for (int64_t n : {8, 9, 11, 16, 22, 25, 32, 40, 49, 61, 64, 113}) {
    for (int sign : {-1, 1}) {
      CheckAll<float>({n, 2, n, 2, n, sign, 1}, random);
      CheckAll<double>({n, 2, n, 2, n, sign, 1}, random);
    }
  }
}

TEST(DotFourierTest, RealNumbers) {
  std::mt19937 random(2);
  for (int64_t n : {8, 15, 20, 50, 64}) {
    for (int sign : {-1, 1}) {
      CheckAll<float>({n, 1, n, 2, n, sign, 0.5}, random);
      CheckAll<double>({n, 1, n, 2, n / 2 + 1, sign, 1}, random);
      CheckAll<float>({n, 2, n / 2 + 1, 1, n, sign, 1.0 / n}, random);
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

// One element of the matrix is another: it is no transform's.
TEST(DotFourierTest, AlmostAFourierMatrix) {
  std::mt19937 random(4);
  for (const Factories* table : SupportedFactories()) {
    Product<float> product({25, 2, 25, 2, 25, -1, 1}, 20, true, random);
    product.matrix().At<float>({0, 0, 0, 1, 24, 1, 24}) += 0.5f;
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
