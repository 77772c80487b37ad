// Maxima, minima and clamps by constants, which machine code knows when it is
// made; comparisons by constants, and what combines comparisons.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

// Every pair of these, a number of times that fills no vector.
template <typename T>
std::vector<T> Special() {
  using Limits = std::numeric_limits<T>;
  return {Limits::quiet_NaN(),
          -Limits::quiet_NaN(),
          Limits::infinity(),
          -Limits::infinity(),
          T(0),
          -T(0),
          Limits::denorm_min(),
          -Limits::denorm_min(),
          T(1),
          T(-1),
          T(0.5),
          Limits::max(),
          Limits::lowest()};
}

// Whether a program of x and constants has the bits of the same program whose
// constants are operands.
template <typename T>
void CheckBounds(const Factories& table, Opcode op, std::vector<T> x,
                 const std::vector<T>& bounds, size_t place) {
  const auto n = static_cast<int64_t>(x.size());
  const RegisterType type = TypeOf<T>::kRegister;
  std::vector<std::vector<T>> results;
  for (const bool known : {true, false}) {
    Builder code;
    Setting setting{{n}, {Strided(0, TypeOf<T>::kDtype, {n}, {1})}, {}};
    std::vector<void*> bases = {x.data()};
    std::vector<std::vector<T>> loaded;
    for (T bound : bounds) loaded.emplace_back(x.size(), bound);
    std::vector<uint16_t> values = {code.Load<T>(0)};
    for (size_t k = 0; k < bounds.size(); ++k) {
      if (known) {
        values.push_back(code.Constant<T>(bounds[k]));
        continue;
      }
      const auto base = static_cast<uint32_t>(bases.size());
      values.push_back(code.Load<T>(base));
      setting.operands.push_back(Strided(base, TypeOf<T>::kDtype, {n}, {1}));
      bases.push_back(loaded[k].data());
    }
    std::rotate(values.begin(), values.begin() + 1,
                values.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    code.map.outputs = {code.Add(op, type, values)};
    std::vector<T> result(x.size());
    setting.results = {Strided(static_cast<uint32_t>(bases.size()),
                               TypeOf<T>::kDtype, {n}, {1})};
    bases.push_back(result.data());
    RunMap(table, setting, code.map, bases);
    results.push_back(std::move(result));
  }
  for (size_t k = 0; k < x.size(); ++k) {
    ASSERT_EQ(std::memcmp(&results[0][k], &results[1][k], sizeof(T)), 0)
        << "opcode " << static_cast<int>(op) << " of " << x[k] << " at " << k
        << " as operand " << place << " and " << bounds[0] << ": "
        << results[0][k] << ", not " << results[1][k];
  }
}

template <typename T>
void CheckAllBounds(const Factories& table) {
  const std::vector<T> special = Special<T>();
  for (size_t n : {size_t{2}, size_t{8}, size_t{13}, size_t{67}}) {
    std::vector<T> x(n);
    for (size_t k = 0; k < n; ++k) x[k] = special[k % special.size()];
    for (T bound : special) {
      for (Opcode op : {Opcode::kMax, Opcode::kMin}) {
        for (size_t place : {0, 1})
          CheckBounds<T>(table, op, x, {bound}, place);
      }
      for (T other : special) {
        CheckBounds<T>(table, Opcode::kClamp, x, {bound, other}, 1);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(MapTest, BoundsThatAreConstants) {
  CheckAllBounds<float>(table());
  CheckAllBounds<double>(table());
}

// Whether maxima and minima of x, or its magnitude, and the magnitude of y have
// the bits of the same of magnitudes that are operands.
template <typename T>
void CheckMagnitudes(const Factories& table, Opcode op, bool both) {
  const RegisterType type = TypeOf<T>::kRegister;
  std::vector<T> x, y, size_of_x, size_of_y;
  for (T a : Special<T>()) {
    for (T b : Special<T>()) {
      x.push_back(a);
      y.push_back(b);
      size_of_x.push_back(std::abs(a));
      size_of_y.push_back(std::abs(b));
    }
  }
  const auto n = static_cast<int64_t>(x.size());
  const auto run = [&](bool known) {
    std::vector<T> result(x.size());
    const bool loads_x = known || !both;
    const std::vector<void*> bases = {(loads_x ? x : size_of_x).data(),
                                      (known ? y : size_of_y).data(),
                                      result.data()};
    Builder code;
    Setting setting;
    setting.shape = {n};
    for (uint32_t k : {0, 1}) {
      setting.operands.push_back(Strided(k, TypeOf<T>::kDtype, {n}, {1}));
    }
    setting.results = {Strided(2, TypeOf<T>::kDtype, {n}, {1})};
    std::vector<uint16_t> values = {code.Load<T>(0), code.Load<T>(1)};
    if (known && both) values[0] = code.Add(Opcode::kAbs, type, {values[0]});
    if (known) values[1] = code.Add(Opcode::kAbs, type, {values[1]});
    code.map.outputs = {code.Add(op, type, values)};
    RunMap(table, setting, code.map, bases);
    return result;
  };
  const std::vector<T> result = run(true), expected = run(false);
  for (size_t k = 0; k < x.size(); ++k) {
    ASSERT_EQ(std::memcmp(&result[k], &expected[k], sizeof(T)), 0)
        << "opcode " << static_cast<int>(op) << " of " << x[k] << " and "
        << y[k] << ": " << result[k] << ", not " << expected[k];
  }
}

TEST_P(MapTest, BoundsThatAreMagnitudes) {
  for (Opcode op : {Opcode::kMax, Opcode::kMin}) {
    for (bool both : {false, true}) {
      CheckMagnitudes<float>(table(), op, both);
      CheckMagnitudes<double>(table(), op, both);
    }
  }
}

bool Holds(Opcode op, int64_t a, int64_t b) {
  switch (op) {
    case Opcode::kEq:
      return a == b;
    case Opcode::kNe:
      return a != b;
    case Opcode::kLt:
      return a < b;
    case Opcode::kLe:
      return a <= b;
    case Opcode::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

constexpr Opcode kComparisons[] = {Opcode::kEq, Opcode::kNe, Opcode::kLt,
                                   Opcode::kLe, Opcode::kGt, Opcode::kGe};

// For all x: x op c, c op x, and x selected by both combined.
template <typename T>
void CheckComparisons(const Factories& table, DType dtype, Opcode op, T c,
                      Opcode combine) {
  std::vector<T> x(261);
  std::iota(x.begin(), x.end(), std::numeric_limits<T>::min());
  const auto n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> first(x.size()), second(x.size());
  std::vector<T> chosen(x.size());
  constexpr RegisterType kType =
      std::is_signed_v<T> ? RegisterType::kI32 : RegisterType::kU32;
  Builder code;
  const auto value = code.Add(Opcode::kLoad, kType, {}, 0);
  const auto bound =
      code.Add(Opcode::kConst, kType, {}, static_cast<uint32_t>(int32_t{c}));
  const auto low = code.Add(op, kType, {value, bound});
  const auto high = code.Add(Opcode::kGe, kType, {bound, value});
  const auto both = code.Add(combine, RegisterType::kU32, {low, high});
  code.map.outputs = {low, both,
                      code.Add(Opcode::kSelect, kType, {both, value, bound})};
  Setting setting{
      {n},
      {Strided(0, dtype, {n}, {1})},
      {Strided(1, DType::kBool, {n}, {1}), Strided(2, DType::kBool, {n}, {1}),
       Strided(3, dtype, {n}, {1})}};
  RunMap(table, setting, code.map,
         {x.data(), first.data(), second.data(), chosen.data()});
  for (size_t k = 0; k < x.size(); ++k) {
    const bool a = Holds(op, x[k], c), b = c >= x[k];
    const bool expected = combine == Opcode::kAnd  ? a && b
                          : combine == Opcode::kOr ? a || b
                                                   : a != b;
    ASSERT_EQ(first[k], a) << +x[k] << " and " << +c;
    ASSERT_EQ(second[k], expected) << +x[k] << " and " << +c;
    ASSERT_EQ(chosen[k], expected ? x[k] : c) << +x[k] << " and " << +c;
  }
}

template <typename T>
void CheckAllComparisons(const Factories& table, DType dtype) {
  using Limits = std::numeric_limits<T>;
  for (const T c :
       {Limits::min(), static_cast<T>(Limits::min() + 1), T(0), T(1), T(100),
        static_cast<T>(Limits::max() - 1), Limits::max()}) {
    for (Opcode op : kComparisons) {
      for (Opcode combine :
           {Opcode::kAnd, Opcode::kOr, Opcode::kXor, Opcode::kNe}) {
        CheckComparisons<T>(table, dtype, op, c, combine);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(MapTest, CombinedComparisonsWithConstants) {
  CheckAllComparisons<int8_t>(table(), DType::kI8);
  CheckAllComparisons<uint8_t>(table(), DType::kU8);
  CheckAllComparisons<int16_t>(table(), DType::kI16);
  CheckAllComparisons<uint16_t>(table(), DType::kU16);
  CheckAllComparisons<int32_t>(table(), DType::kI32);
}

// A mask of 4-byte lanes and one of 8-byte lanes are not combined as they are.
TEST_P(MapTest, CombinedComparisonsOfTwoWidths) {
  std::vector<float> x(67);
  std::iota(x.begin(), x.end(), -30.f);
  std::vector<double> y(x.rbegin(), x.rend()), found(x.size());
  const auto n = static_cast<int64_t>(x.size());
  Builder code;
  const auto a = code.Load<float>(0);
  const auto b = code.Load<double>(1);
  const auto low =
      code.Add(Opcode::kLt, RegisterType::kF32, {a, code.Constant<float>(3)});
  const auto high =
      code.Add(Opcode::kGt, RegisterType::kF64, {b, code.Constant<double>(-5)});
  const auto both = code.Add(Opcode::kAnd, RegisterType::kU32, {low, high});
  code.map.outputs = {code.Add(Opcode::kSelect, RegisterType::kF64,
                               {both, b, code.Constant<double>(0.5)})};
  Setting setting{
      {n},
      {Strided(0, DType::kF32, {n}, {1}), Strided(1, DType::kF64, {n}, {1})},
      {Strided(2, DType::kF64, {n}, {1})}};
  RunMap(table(), setting, code.map, {x.data(), y.data(), found.data()});
  for (size_t k = 0; k < x.size(); ++k) {
    EXPECT_EQ(found[k], x[k] < 3 && y[k] > -5 ? y[k] : 0.5);
  }
}

}  // namespace
}  // namespace ipu::model
