// Accuracy and edge cases of the mathematical functions of floats.

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

TEST_P(MapTest, PowersOfFloats) {
  const std::vector<float> a = {-8, -8,   0,    -0.f,  -1,    1,  -0.f,
                                2,  0.5f, kNan, -kInf, -kInf, -2, kNan};
  const std::vector<float> b = {3,     1.f / 3, -1, -1, kInf, kNan, 0.5f,
                                -kInf, -kInf,   0,  3,  -3,   kInf, 1};
  std::vector<float> expected;
  for (size_t i = 0; i < a.size(); ++i) {
    expected.push_back(static_cast<float>(
        std::pow(static_cast<double>(a[i]), static_cast<double>(b[i]))));
  }
  ExpectSame(Do<float>(Opcode::kPow, {a, b}), expected);
}

TEST_P(MapTest, AnglesInAllQuadrants) {
  const std::vector<float> axis = {0, -0.f, 1, -1, kInf, -kInf, kNan, 2.5f};
  std::vector<float> y, x, expected;
  for (float v : axis) {
    for (float u : axis) {
      y.push_back(v);
      x.push_back(u);
      expected.push_back(static_cast<float>(
          std::atan2(static_cast<double>(v), static_cast<double>(u))));
    }
  }
  const auto found = Do<float>(Opcode::kAtan2, {y, x});
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i]));
    if (std::isnan(found[i])) continue;
    EXPECT_EQ(std::signbit(found[i]), std::signbit(expected[i]));
    EXPECT_FLOAT_EQ(found[i], expected[i]) << y[i] << ", " << x[i];
  }
}

// The error in units in the last place.
template <typename T>
double Error(T found, long double exact) {
  const T nearest = static_cast<T>(exact);
  if (found == nearest || (found != found && nearest != nearest)) return 0;
  int exponent;
  std::frexp(nearest, &exponent);
  const int digits = std::numeric_limits<T>::digits;
  return static_cast<double>(std::abs(found - exact) /
                             std::ldexp(1.0L, exponent - digits));
}

struct Function {
  Opcode op;
  long double (*exact)(long double);
  double low;
  double high;
};

const Function kFunctions[] = {
    {Opcode::kExp, std::exp, -87, 88},
    {Opcode::kExpm1, std::expm1, -2, 2},
    {Opcode::kExpm1, std::expm1, -1e-5, 1e-5},
    {Opcode::kLog, std::log, 1e-30, 1e30},
    {Opcode::kLog, std::log, 0.5, 2},
    {Opcode::kLog1p, std::log1p, -0.9, 3},
    {Opcode::kLog1p, std::log1p, -1e-5, 1e-5},
    {Opcode::kSqrt, std::sqrt, 0, 100},
    {Opcode::kCbrt, std::cbrt, -100, 100},
    {Opcode::kSin, std::sin, -100, 100},
    {Opcode::kCos, std::cos, -100, 100},
    {Opcode::kTan, std::tan, -100, 100},
    {Opcode::kSin, std::sin, 1e10, 1e11},
    {Opcode::kTanh, std::tanh, -10, 10},
    {Opcode::kTanh, std::tanh, -1e-4, 1e-4},
};

template <typename T>
void CheckFunctions(const Factories& table) {
  std::mt19937 random(3);
  for (const Function& function : kFunctions) {
    std::uniform_real_distribution<T> range(static_cast<T>(function.low),
                                            static_cast<T>(function.high));
    std::vector<T> a(1000);
    for (T& x : a) x = range(random);
    const auto found = Apply<T, T>(table, function.op, {a});
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_LE(Error(found[i], function.exact(a[i])), 3)
          << static_cast<int>(function.op) << " of " << a[i];
      // The result must not depend on the position of an element in its block.
      if (i % 97 != 0) continue;
      ExpectSame(Apply<T, T>(table, function.op, {{a[i]}}), {found[i]});
    }
  }
}

TEST_P(MapTest, FunctionsAreExactToAFewUnits) {
  CheckFunctions<float>(table());
  CheckFunctions<double>(table());
}

// From where results are denormal to where they are infinite.
template <typename T>
void CheckExponentials(const Factories& table, double low, double high) {
  std::vector<T> a;
  for (int k = 0; k <= 1000; ++k) {
    a.push_back(static_cast<T>(low + (high - low) * k / 1000));
  }
  const auto found = Apply<T, T>(table, Opcode::kExp, {a});
  constexpr auto kSmallest = std::numeric_limits<T>::denorm_min();
  for (size_t i = 0; i < a.size(); ++i) {
    const auto exact = std::exp(static_cast<long double>(a[i]));
    const auto nearest = static_cast<T>(exact);
    if (nearest < std::numeric_limits<T>::min()) {
      EXPECT_LE(std::abs(found[i] - exact), kSmallest) << a[i];
    } else {
      EXPECT_LE(Error(found[i], exact), 3) << a[i];
    }
  }
}

TEST_P(MapTest, ExponentialsNearTheLimits) {
  CheckExponentials<float>(table(), -107, -86);
  CheckExponentials<float>(table(), 88, 90);
  CheckExponentials<double>(table(), -748, -707);
  CheckExponentials<double>(table(), 709, 711);
}

TEST_P(MapTest, FunctionsAtTheirEdges) {
  const std::vector<float> a = {kNan, kInf, -kInf, 0.f, -0.f};
  ExpectSame(Do<float>(Opcode::kExp, {a}), {kNan, kInf, 0, 1, 1});
  ExpectSame(Do<float>(Opcode::kExpm1, {a}), {kNan, kInf, -1, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kLog, {a}), {kNan, kInf, kNan, -kInf, -kInf});
  ExpectSame(Do<float>(Opcode::kLog1p, {a}), {kNan, kInf, kNan, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kSqrt, {a}), {kNan, kInf, kNan, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kRsqrt, {a}), {kNan, 0, kNan, kInf, -kInf});
  ExpectSame(Do<float>(Opcode::kCbrt, {a}), {kNan, kInf, -kInf, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kSin, {a}), {kNan, kNan, kNan, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kCos, {a}), {kNan, kNan, kNan, 1, 1});
  ExpectSame(Do<float>(Opcode::kTan, {a}), {kNan, kNan, kNan, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kTanh, {a}), {kNan, 1, -1, 0, -0.f});
  ExpectSame(Do<float>(Opcode::kLogistic, {a}), {kNan, 1, 0, 0.5f, 0.5f});
  ExpectSame(Do<float>(Opcode::kLog1p, {{-1, 3e38f}}),
             {-kInf, std::log1p(3e38f)});
}

// In vectors that are whole or not, with what is special in all of their lanes:
// e^x, and 1 / (1 + e^-x).
template <typename T>
void CheckAllSizes(const Factories& table) {
  constexpr T kInfinite = std::numeric_limits<T>::infinity();
  constexpr T kNotANumber = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> special = {
      0,           T(-0.0),  1,        T(-1.5),    T(80),   T(-87.3), -105,
      kNotANumber, T(1e-30), T(0.7),   -kInfinite, T(-0.3), 1000,     -1000,
      kInfinite,   T(5),     T(88.73), T(-103.5),  37};
  for (size_t n = 1; n <= 130; ++n) {
    std::vector<T> a(n);
    for (size_t i = 0; i < n; ++i) a[i] = special[(i + n) % special.size()];
    const auto exp = Apply<T, T>(table, Opcode::kExp, {a});
    const auto logistic = Apply<T, T>(table, Opcode::kLogistic, {a});
    for (size_t i = 0; i < n; ++i) {
      const auto x = static_cast<long double>(a[i]);
      const auto nearest = static_cast<T>(std::exp(x));
      if (nearest < std::numeric_limits<T>::min()) {
        EXPECT_LE(exp[i], nearest + std::numeric_limits<T>::denorm_min());
        EXPECT_GE(exp[i], nearest - std::numeric_limits<T>::denorm_min());
      } else {
        EXPECT_LE(Error(exp[i], std::exp(x)), 3) << a[i] << " of " << n;
      }
      const long double exact = 1 / (1 + std::exp(-x));
      if (exact < std::numeric_limits<T>::min()) {
        EXPECT_LE(std::abs(logistic[i] - exact),
                  2 * std::numeric_limits<T>::denorm_min())
            << a[i] << " of " << n;
      } else {
        EXPECT_LE(Error(logistic[i], exact), 4) << a[i] << " of " << n;
      }
      EXPECT_EQ(std::isnan(logistic[i]), std::isnan(a[i]));
    }
  }
}

TEST_P(MapTest, ExponentialsAtAllSizes) {
  CheckAllSizes<float>(table());
  CheckAllSizes<double>(table());
}

// Odd, the argument itself where that is small, and never beyond 1.
TEST_P(MapTest, HyperbolicTangents) {
  std::vector<float> a, small;
  for (float x = 1e-3f; x < 12; x *= 1.0003f) a.push_back(x);
  for (float x = 1e-45f; x < 1e-4f; x *= 1.5f + 1e-45f) {
    small.push_back(x);
    small.push_back(-x);
  }
  ExpectSame(Do<float>(Opcode::kTanh, {small}), small);
  std::vector<float> negative;
  for (const float x : a) negative.push_back(-x);
  const auto found = Do<float>(Opcode::kTanh, {a});
  const auto mirrored = Do<float>(Opcode::kTanh, {negative});
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(found[i], 1) << a[i];
    if (a[i] > 9.02f) EXPECT_EQ(found[i], 1) << a[i];
    EXPECT_EQ(mirrored[i], -found[i]) << a[i];
    EXPECT_LE(Error(found[i], std::tanh(static_cast<long double>(a[i]))), 3)
        << a[i];
  }
}

// Several steps over arrays that exceed the caches: x tanh(x) + x.
TEST_P(MapTest, FunctionsOfManyElements) {
  constexpr int64_t kMany = 300'001;
  std::vector<float> x(kMany), found(kMany);
  for (int64_t k = 0; k < kMany; ++k) {
    x[k] = static_cast<float>(k % 997 - 500) / 128;
  }
  Builder code;
  using program::RegisterType;
  const auto add = [&](Opcode op, std::vector<uint16_t> operands) {
    return code.Add(op, RegisterType::kF32, std::move(operands));
  };
  const uint16_t value = code.Add(Opcode::kLoad, RegisterType::kF32, {}, 0);
  const uint16_t tanh = add(Opcode::kTanh, {value});
  code.map.outputs = {
      add(Opcode::kAdd, {add(Opcode::kMul, {value, tanh}), value})};
  Setting setting{{kMany}, {Strided(0, DType::kF32, {kMany}, {1})}, {}};
  setting.results = {Strided(1, DType::kF32, {kMany}, {1})};
  RunMap(table(), setting, code.map, {x.data(), found.data()});
  const auto period = Do<float>(
      Opcode::kTanh, {std::vector<float>(x.begin(), x.begin() + 997)});
  for (int64_t k = 0; k < kMany; ++k) {
    ASSERT_EQ(found[k], x[k] * period[k % 997] + x[k]) << k;
  }
}

}  // namespace
}  // namespace ipu::model
