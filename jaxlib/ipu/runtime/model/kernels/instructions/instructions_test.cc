// Edge cases of each instruction of elementwise programs.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

TEST_P(MapTest, MaximumAndMinimumOfFloats) {
  const std::vector<float> a = {kNan, 1, 0.f, -0.f, 2, -kInf};
  const std::vector<float> b = {1, kNan, -0.f, 0.f, 3, 5};
  ExpectSame(Do<float>(Opcode::kMax, {a, b}), {kNan, kNan, 0, 0, 3, 5});
  ExpectSame(Do<float>(Opcode::kMin, {a, b}),
             {kNan, kNan, -0.f, -0.f, 2, -kInf});
}

TEST_P(MapTest, Clamp) {
  ExpectSame(Do<float>(Opcode::kClamp, {{0, 0, 0, kNan, 0, 2},
                                        {-1, 5, kNan, 1, 1, 5},
                                        {3, 3, 3, 3, kNan, 1}}),
             {0, 3, kNan, kNan, kNan, 1});
  ExpectSame(Do<int32_t>(Opcode::kClamp, {{0, 0}, {-9, 9}, {4, 4}}), {0, 4});
}

TEST_P(MapTest, SignsAndRounding) {
  const std::vector<float> a = {kNan,  0.f,         -0.f, 2.5f,
                                -2.5f, 0.49999997f, -kInf};
  ExpectSame(Do<float>(Opcode::kSign, {a}), {kNan, 0, -0.f, 1, -1, 1, -1});
  ExpectSame(Do<float>(Opcode::kNegate, {a}),
             {kNan, -0.f, 0, -2.5f, 2.5f, -0.49999997f, kInf});
  ExpectSame(Do<float>(Opcode::kRoundAfz, {a}),
             {kNan, 0, -0.f, 3, -3, 0, -kInf});
  ExpectSame(Do<float>(Opcode::kRoundEven, {a}),
             {kNan, 0, -0.f, 2, -2, 0, -kInf});
  ExpectSame(Do<float>(Opcode::kFloor, {a}), {kNan, 0, -0.f, 2, -3, 0, -kInf});
  ExpectSame(Do<float>(Opcode::kCeil, {a}), {kNan, 0, -0.f, 3, -2, 1, -kInf});
  ExpectSame(Do<int32_t>(Opcode::kSign, {{INT32_MIN, 0, 7}}), {-1, 0, 1});
  ExpectSame(Do<int32_t>(Opcode::kAbs, {{INT32_MIN, -3, 3}}),
             {INT32_MIN, 3, 3});
  ExpectSame(Do<uint32_t>(Opcode::kSign, {{0x80000000u, 0}}), {1, 0});
}

template <typename T>
void CheckDivision(const Factories& table) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  const T ones = static_cast<T>(-1);
  const std::vector<T> a = {7, 7, 0, kMax, kMin, kMax, kMin};
  const std::vector<T> b = {0, 2, 0, kMax, kMax, 3, 2};
  std::vector<T> quotient, rest;
  for (size_t i = 0; i < a.size(); ++i) {
    quotient.push_back(b[i] == 0 ? ones : static_cast<T>(a[i] / b[i]));
    rest.push_back(b[i] == 0 ? a[i] : static_cast<T>(a[i] % b[i]));
  }
  ExpectSame(Apply<T, T>(table, Opcode::kDiv, {a, b}), quotient);
  ExpectSame(Apply<T, T>(table, Opcode::kRem, {a, b}), rest);
  if (!std::is_signed_v<T>) return;
  ExpectSame(
      Apply<T, T>(table, Opcode::kDiv, {{kMin, static_cast<T>(-7)}, {ones, 2}}),
      {kMin, static_cast<T>(-3)});
  ExpectSame(
      Apply<T, T>(table, Opcode::kRem, {{kMin, static_cast<T>(-7)}, {ones, 2}}),
      {0, ones});
}

TEST_P(MapTest, IntegerDivision) {
  CheckDivision<int32_t>(table());
  CheckDivision<uint32_t>(table());
  CheckDivision<int64_t>(table());
  CheckDivision<uint64_t>(table());
}

TEST_P(MapTest, FloatRemainder) {
  ExpectSame(
      Do<float>(Opcode::kRem, {{5.5f, -5.5f, 5.5f, 1, kInf, 3, -6, 1e30f},
                               {2, 2, -2, 0, 1, kInf, 3, 7}}),
      {1.5f, -1.5f, 1.5f, kNan, kNan, 3, -0.f, std::fmod(1e30f, 7.f)});
}

TEST_P(MapTest, Shifts) {
  const std::vector<int32_t> a = {-8, -8, -8, -8, 5, 5};
  const std::vector<int32_t> n = {0, 1, 32, -1, 31, 33};
  ExpectSame(Do<int32_t>(Opcode::kShl, {a, n}), {-8, -16, 0, 0, INT32_MIN, 0});
  ExpectSame(Do<int32_t>(Opcode::kShrLogical, {a, n}),
             {-8, 0x7ffffffc, 0, 0, 0, 0});
  ExpectSame(Do<int32_t>(Opcode::kShrArithmetic, {a, n}),
             {-8, -4, -1, -1, 0, 0});
  ExpectSame(Do<int64_t>(Opcode::kShrArithmetic, {{-8, -8}, {63, 64}}),
             {-1, -1});
  ExpectSame(Do<uint64_t>(Opcode::kShl, {{3, 3}, {63, 64}}),
             {uint64_t{1} << 63, 0});
}

TEST_P(MapTest, CountsOfBits) {
  ExpectSame(Do<uint32_t>(Opcode::kClz, {{0, 1, 0x80000000u}}), {32, 31, 0});
  ExpectSame(Do<int64_t>(Opcode::kClz, {{0, 1, -1}}), {64, 63, 0});
  ExpectSame(Do<int32_t>(Opcode::kPopcnt, {{0, -1, 6}}), {0, 32, 2});
}

template <typename T>
void CheckCountsOfBits(const Factories& table) {
  std::mt19937_64 random(5);
  std::vector<T> a, ones, zeros;
  for (int bits = 0; bits <= std::numeric_limits<T>::digits; ++bits) {
    for (int k = 0; k < 5; ++k) {
      const uint64_t below =
          bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
      a.push_back(static_cast<T>(k == 0 ? below : random() & below));
      ones.push_back(static_cast<T>(std::popcount(a.back())));
      zeros.push_back(static_cast<T>(std::countl_zero(a.back())));
    }
  }
  ExpectSame(Apply<T, T>(table, Opcode::kPopcnt, {a}), ones);
  ExpectSame(Apply<T, T>(table, Opcode::kClz, {a}), zeros);
}

TEST_P(MapTest, CountsOfBitsOfManyNumbers) {
  CheckCountsOfBits<uint32_t>(table());
  CheckCountsOfBits<uint64_t>(table());
}

TEST_P(MapTest, PowersOfIntegers) {
  ExpectSame(
      Do<int32_t>(Opcode::kPow, {{3, 0, 0, 1, -1, -1, 2, 2, 7, 0, -3},
                                 {4, 0, -1, -5, -3, -2, -1, 31, 64, 64, 65}}),
      {81, 1, 0, 1, -1, 1, 0, INT32_MIN, -1061456383, 0, -1820079875});
  ExpectSame(Do<uint32_t>(Opcode::kPow, {{3, 5, 0}, {~0u, 1u << 31, 1u << 31}}),
             {2863311531u, 1, 0});
}

TEST_P(MapTest, Conversions) {
  const std::vector<float> a = {kNan, kInf,  -kInf, -1.9f,
                                3e9f, -3e9f, 5e9f,  1e20f};
  ExpectSame(Apply<int32_t, float>(table(), Opcode::kConvert, {a}),
             {0, INT32_MAX, INT32_MIN, -1, INT32_MAX, INT32_MIN, INT32_MAX,
              INT32_MAX});
  ExpectSame(Apply<uint32_t, float>(table(), Opcode::kConvert, {a}),
             {0, UINT32_MAX, 0, 0, 3000000000u, 0, UINT32_MAX, UINT32_MAX});
  ExpectSame(Apply<int64_t, float>(table(), Opcode::kConvert, {a}),
             {0, INT64_MAX, INT64_MIN, -1, 3000000000, -3000000000, 5000000000,
              INT64_MAX});
  ExpectSame(Apply<uint64_t, float>(table(), Opcode::kConvert, {a}),
             {0, UINT64_MAX, 0, 0, 3000000000u, 0, 5000000000u, UINT64_MAX});
  ExpectSame(Apply<float, uint64_t>(table(), Opcode::kConvert,
                                    {{UINT64_MAX, 1, (1u << 24) + 1}}),
             {0x1p64f, 1, 0x1p24f});
  ExpectSame(Apply<int64_t, int32_t>(table(), Opcode::kConvert, {{-5, 5}}),
             {-5, 5});
  ExpectSame(Apply<uint32_t, int64_t>(table(), Opcode::kConvert, {{-1, 5}}),
             {UINT32_MAX, 5});
}

TEST_P(MapTest, Comparisons) {
  const std::vector<float> a = {1, kNan, 0.f, 2};
  const std::vector<float> b = {1, kNan, -0.f, 1};
  const auto compare = [&](Opcode op) {
    return Apply<uint8_t, float>(table(), op, {a, b});
  };
  using Flags = std::vector<uint8_t>;
  EXPECT_EQ(compare(Opcode::kEq), (Flags{1, 0, 1, 0}));
  EXPECT_EQ(compare(Opcode::kNe), (Flags{0, 1, 0, 1}));
  EXPECT_EQ(compare(Opcode::kLt), (Flags{0, 0, 0, 0}));
  EXPECT_EQ(compare(Opcode::kLe), (Flags{1, 0, 1, 0}));
  EXPECT_EQ(compare(Opcode::kGt), (Flags{0, 0, 0, 1}));
  EXPECT_EQ(compare(Opcode::kGe), (Flags{1, 0, 1, 1}));
  const auto less = [&]<typename T>(T low, T high) {
    return Apply<uint8_t, T>(table(), Opcode::kLt, {{low, high}, {high, low}});
  };
  EXPECT_EQ(less(int32_t{-1}, int32_t{1}), (Flags{1, 0}));
  EXPECT_EQ(less(uint32_t{1}, uint32_t{0xffffffff}), (Flags{1, 0}));
  EXPECT_EQ(less(INT64_MIN, INT64_MAX), (Flags{1, 0}));
  EXPECT_EQ(less(uint64_t{1}, UINT64_MAX), (Flags{1, 0}));
}

TEST_P(MapTest, NarrowIntegersWrap) {
  Builder code;
  const auto x = code.Load<int8_t>(0);
  const auto product = code.Add(Opcode::kMul, RegisterType::kI32,
                                {x, code.Constant<int32_t>(3)});
  code.map.outputs = {code.Add(Opcode::kWrapI8, RegisterType::kI32, {product})};
  std::vector<int8_t> a(300), found(300);
  for (int i = 0; i < 300; ++i) a[i] = static_cast<int8_t>(i);
  const Operand dense = Strided(0, DType::kI8, {300}, {1});
  Setting setting{{300}, {dense}, {dense}};
  setting.results[0].view.base = 1;
  RunMap(table(), setting, code.map, {a.data(), found.data()});
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(found[i], static_cast<int8_t>(3 * a[i]));
  }
}

TEST_P(MapTest, Bfloat16RoundsToNearestEven) {
  Builder code;
  const auto x = code.Load<float>(0);
  code.map.outputs = {code.Add(Opcode::kRoundBf16, RegisterType::kF32, {x})};
  std::vector<float> a = {1.00390625f, 1.01171875f, 3.4e38f, kNan, -1};
  std::vector<uint16_t> found(a.size());
  const auto n = static_cast<int64_t>(a.size());
  Setting setting{{n},
                  {Strided(0, DType::kF32, {n}, {1})},
                  {Strided(1, DType::kBF16, {n}, {1})}};
  RunMap(table(), setting, code.map, {a.data(), found.data()});
  EXPECT_EQ(found[0], 0x3f80);
  EXPECT_EQ(found[1], 0x3f82);
  EXPECT_EQ(found[2], 0x7f80);
  EXPECT_EQ(found[3] & 0x7fc0, 0x7fc0);
  EXPECT_EQ(found[4], 0xbf80);
}

}  // namespace
}  // namespace ipu::model
