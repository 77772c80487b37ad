// Element-wise programs: what each instruction gives at its edges, and that
// layout, length, threads and shared storage change nothing. For both
// instruction sets.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model {
namespace {

using program::Opcode;
using program::RegisterType;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<const Factories*> AllTables() {
  std::vector<const Factories*> tables = {&avx2::Table()};
  if (BestFactories() != tables[0]) tables.push_back(BestFactories());
  return tables;
}

template <typename T>
struct TypeOf;
#define IPU_TYPE(T, REGISTER, DTYPE)                                  \
  template <>                                                         \
  struct TypeOf<T> {                                                  \
    static constexpr RegisterType kRegister = RegisterType::REGISTER; \
    static constexpr uint8_t kDtype = program::DTYPE;                 \
  };
IPU_TYPE(float, kF32, kF32)
IPU_TYPE(double, kF64, kF64)
IPU_TYPE(int32_t, kI32, kI32)
IPU_TYPE(uint32_t, kU32, kU32)
IPU_TYPE(int64_t, kI64, kI64)
IPU_TYPE(uint64_t, kU64, kU64)
IPU_TYPE(int8_t, kI32, kI8)
IPU_TYPE(uint8_t, kU32, kBool)  // comparisons' results
#undef IPU_TYPE

// Writes code; values are named by their numbers.
class Builder {
 public:
  uint16_t Add(Opcode op, RegisterType type, std::vector<uint16_t> operands,
               uint64_t imm = 0) {
    operands.resize(3);
    char b[16];
    b[0] = static_cast<char>(op);
    b[1] = static_cast<char>(type);
    std::memcpy(b + 2, operands.data(), 6);
    std::memcpy(b + 8, &imm, 8);
    map.code.append(b, sizeof b);
    return count_++;
  }
  template <typename T>
  uint16_t Load(uint64_t operand) {
    return Add(Opcode::kLoad, TypeOf<T>::kRegister, {}, operand);
  }
  template <typename T>
  uint16_t Constant(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return Add(Opcode::kConst, TypeOf<T>::kRegister, {}, bits);
  }

  program::Map map;

 private:
  uint16_t count_ = 0;
};

// An operand or result over `shape` of the given strides (in elements), one
// for each dimension of the iteration space.
Operand Strided(uint32_t base, uint8_t dtype, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& strides) {
  Operand operand;
  operand.view = {base, 0, dtype, program::ItemSize(dtype), shape, strides};
  for (size_t d = 0; d < shape.size(); ++d) {
    operand.dims.push_back(static_cast<int32_t>(d));
  }
  return operand;
}

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

struct Setting {
  std::vector<int64_t> shape;
  std::vector<Operand> operands;
  std::vector<Operand> results;
};

KernelOr Make(const Factories& table, const Setting& setting,
              const program::Map& map) {
  static const program::Execute kStep;
  return table.map({kStep, setting.shape, setting.operands, setting.results},
                   map);
}

void RunMap(const Factories& table, const Setting& setting,
            const program::Map& map, std::vector<void*> bases,
            int threads = 1) {
  const KernelOr kernel = Make(table, setting, map);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  ThreadPool pool(threads);
  (*kernel)->Run({reinterpret_cast<char* const*>(bases.data())}, pool);
}

// op(operands...) for vectors of one length.
template <typename R, typename T>
std::vector<R> Apply(const Factories& table, Opcode op,
                     std::vector<std::vector<T>> operands) {
  Builder code;
  Setting setting;
  const auto n = static_cast<int64_t>(operands[0].size());
  setting.shape = {n};
  std::vector<uint16_t> values;
  std::vector<void*> bases;
  for (auto& operand : operands) {
    const auto base = static_cast<uint32_t>(bases.size());
    values.push_back(code.Load<T>(base));
    setting.operands.push_back(Strided(base, TypeOf<T>::kDtype, {n}, {1}));
    bases.push_back(operand.data());
  }
  if (op == Opcode::kConvert) {
    values.push_back(static_cast<uint16_t>(TypeOf<T>::kRegister));
    code.map.outputs = {code.Add(op, TypeOf<R>::kRegister, values)};
  } else {
    code.map.outputs = {code.Add(op, TypeOf<T>::kRegister, values)};
  }
  setting.results.push_back(Strided(static_cast<uint32_t>(bases.size()),
                                    TypeOf<R>::kDtype, {n}, {1}));
  std::vector<R> result(n);
  bases.push_back(result.data());
  RunMap(table, setting, code.map, bases);
  return result;
}

// The same bits, but any NaN for any NaN.
template <typename T>
void ExpectSame(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] != expected[i]) {
      EXPECT_NE(found[i], found[i]) << "at " << i;
    } else {
      EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(T)), 0)
          << "at " << i << ": " << found[i] << ", not " << expected[i];
    }
  }
}

class MapTest : public testing::TestWithParam<const Factories*> {
 protected:
  const Factories& table() const { return *GetParam(); }
  template <typename T>
  std::vector<T> Do(Opcode op, std::vector<std::vector<T>> operands) const {
    return Apply<T, T>(table(), op, std::move(operands));
  }
};

INSTANTIATE_TEST_SUITE_P(InstructionSets, MapTest,
                         testing::ValuesIn(AllTables()));

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

TEST_P(MapTest, PowersOfIntegers) {
  ExpectSame(Do<int32_t>(Opcode::kPow, {{3, 0, 0, 1, -1, -1, 2, 2, 7},
                                        {4, 0, -1, -5, -3, -2, -1, 31, 64}}),
             {81, 1, 0, 1, -1, 1, 0, INT32_MIN, 1});
}

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

// In units of the last place of the type.
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
      // The place of an element in its block does not matter.
      if (i % 97 != 0) continue;
      ExpectSame(Apply<T, T>(table, function.op, {{a[i]}}), {found[i]});
    }
  }
}

TEST_P(MapTest, FunctionsAreExactToAFewUnits) {
  CheckFunctions<float>(table());
  CheckFunctions<double>(table());
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

// x * 2 - y, y, with results of a guard element on each side.
TEST_P(MapTest, WritesItsOwnElementsOnly) {
  for (int64_t n = 1; n < 80; ++n) {
    Builder code;
    const auto x = code.Load<float>(0);
    const auto y = code.Load<float>(1);
    const auto twice = code.Add(Opcode::kMul, RegisterType::kF32,
                                {x, code.Constant<float>(2)});
    code.map.outputs = {code.Add(Opcode::kSub, RegisterType::kF32, {twice, y}),
                        y};
    std::vector<float> a(n), b(n), first(n + 2, -1), second(n + 2, -1);
    for (int64_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(100 * i);
    }
    const Operand dense = Strided(0, program::kF32, {n}, {1});
    Setting setting{{n}, {dense, dense}, {dense, dense}};
    for (uint32_t k = 0; k < 2; ++k) {
      setting.operands[k].view.base = k;
      setting.results[k].view.base = 2 + k;
    }
    RunMap(table(), setting, code.map,
           {a.data(), b.data(), first.data() + 1, second.data() + 1});
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(first[i + 1], 2 * a[i] - b[i]);
      EXPECT_EQ(second[i + 1], b[i]);
    }
    EXPECT_EQ(first[0] + first[n + 1] + second[0] + second[n + 1], -4);
  }
}

// One operand of each layout, added up, against the obvious loop.
TEST_P(MapTest, Layouts) {
  const std::vector<std::vector<int64_t>> shapes = {
      {},       {1},      {7},         {3000},    {50, 10},    {700, 3},
      {5, 600}, {40, 90}, {3, 17, 40}, {1, 5, 1}, {130, 1, 20}};
  for (const auto& shape : shapes) {
    const auto dense = DenseStrides(shape);
    std::vector<int64_t> turned(shape.size());  // the first dimension fastest
    int64_t n = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      turned[d] = n;
      n *= shape[d];
    }
    std::vector<int64_t> backwards = dense, row = dense, column = dense;
    for (int64_t& stride : backwards) stride = -stride;
    for (size_t d = 0; d < shape.size(); ++d) {
      (d + 1 < shape.size() ? row : column)[d] = 0;
    }
    const std::vector<std::vector<int64_t>> layouts = {
        dense, turned, backwards,
        row,   column, std::vector<int64_t>(shape.size(), 0)};
    for (const auto& result_strides : {dense, turned}) {
      Builder code;
      Setting setting;
      setting.shape = shape;
      uint16_t sum = 0;
      for (size_t k = 0; k < layouts.size(); ++k) {
        const auto value = code.Load<float>(k);
        sum = k == 0 ? value
                     : code.Add(Opcode::kAdd, RegisterType::kF32, {sum, value});
        setting.operands.push_back(
            Strided(0, program::kF32, shape, layouts[k]));
        if (k == 2) setting.operands[k].view.offset = (n - 1) * 4;
      }
      for (size_t d = 0; d < shape.size(); ++d) {
        const auto index = code.Add(Opcode::kIota, RegisterType::kF32, {}, d);
        sum = code.Add(Opcode::kAdd, RegisterType::kF32, {sum, index});
      }
      code.map.outputs = {sum};
      setting.results = {Strided(1, program::kF32, shape, result_strides)};
      std::vector<float> data(n), found(n), expected(n);
      for (int64_t i = 0; i < n; ++i) data[i] = static_cast<float>(i % 31);
      for (int64_t flat = 0; flat < n; ++flat) {
        int64_t rest = flat, to = 0;
        float total = 0;
        std::vector<int64_t> at(layouts.size());
        at[2] = n - 1;
        for (size_t d = shape.size(); d-- > 0;) {
          const int64_t index = rest % shape[d];
          rest /= shape[d];
          for (size_t k = 0; k < at.size(); ++k) {
            at[k] += index * layouts[k][d];
          }
          to += index * result_strides[d];
          total += static_cast<float>(index);
        }
        for (int64_t from : at) total += data[from];
        expected[to] = total;
      }
      for (int threads : {1, 3}) {
        RunMap(table(), setting, code.map, {data.data(), found.data()},
               threads);
        EXPECT_EQ(found, expected);
      }
    }
  }
}

// (a, b) <- (a + b, a - b) where a and b are.
TEST_P(MapTest, ResultsInTheStorageOfOperands) {
  for (int64_t n : {1, 10, 5000, 100000}) {
    for (uint32_t swapped : {0, 1}) {
      Builder code;
      const auto x = code.Load<float>(0);
      const auto y = code.Load<float>(1);
      code.map.outputs = {code.Add(Opcode::kAdd, RegisterType::kF32, {x, y}),
                          code.Add(Opcode::kSub, RegisterType::kF32, {x, y})};
      std::vector<float> a(n), b(n);
      for (int64_t i = 0; i < n; ++i) {
        a[i] = static_cast<float>(i);
        b[i] = static_cast<float>(3 * i);
      }
      const std::vector<float> old_a = a, old_b = b;
      const Operand dense = Strided(0, program::kF32, {n}, {1});
      Setting setting{{n}, {dense, dense}, {dense, dense}};
      // The engine gives arguments and results bases of their own, and the
      // same address to two of them if one is donated to the other.
      for (uint32_t k = 0; k < 2; ++k) {
        setting.operands[k].view.base = 2 + k;
        setting.results[k].view.base = 4 + k;
      }
      std::vector<void*> bases = {nullptr, nullptr, a.data(), b.data()};
      bases.push_back(bases[2 + swapped]);
      bases.push_back(bases[3 - swapped]);
      RunMap(table(), setting, code.map, bases, 2);
      const auto& sum = swapped ? b : a;
      const auto& difference = swapped ? a : b;
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], old_a[i] + old_b[i]);
        ASSERT_EQ(difference[i], old_a[i] - old_b[i]);
      }
    }
  }
}

// (a, b, c) <- (b, c, a) where a, b and c are.
TEST_P(MapTest, ResultsThatChangePlaces) {
  for (int64_t n : {1, 10, 5000}) {
    Builder code;
    for (uint64_t k = 0; k < 3; ++k) code.Load<float>(k);
    code.map.outputs = {1, 2, 0};
    const Operand dense = Strided(0, program::kF32, {n}, {1});
    Setting setting{{n}, {dense, dense, dense}, {dense, dense, dense}};
    std::vector<std::vector<float>> arrays;
    std::vector<void*> bases = {nullptr, nullptr};
    for (uint32_t k = 0; k < 3; ++k) {
      setting.operands[k].view.base = 2 + k;
      setting.results[k].view.base = 5 + k;
      arrays.emplace_back(n, static_cast<float>(k));
    }
    for (int k = 0; k < 6; ++k) bases.push_back(arrays[k % 3].data());
    RunMap(table(), setting, code.map, bases);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(arrays[0][i], 1);
      ASSERT_EQ(arrays[1][i], 2);
      ASSERT_EQ(arrays[2][i], 0);
    }
  }
}

TEST_P(MapTest, NarrowIntegersWrap) {
  Builder code;
  const auto x = code.Load<int8_t>(0);
  const auto product = code.Add(Opcode::kMul, RegisterType::kI32,
                                {x, code.Constant<int32_t>(3)});
  code.map.outputs = {code.Add(Opcode::kWrapI8, RegisterType::kI32, {product})};
  std::vector<int8_t> a(300), found(300);
  for (int i = 0; i < 300; ++i) a[i] = static_cast<int8_t>(i);
  const Operand dense = Strided(0, program::kI8, {300}, {1});
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
                  {Strided(0, program::kF32, {n}, {1})},
                  {Strided(1, program::kBF16, {n}, {1})}};
  RunMap(table(), setting, code.map, {a.data(), found.data()});
  EXPECT_EQ(found[0], 0x3f80);
  EXPECT_EQ(found[1], 0x3f82);
  EXPECT_EQ(found[2], 0x7f80);
  EXPECT_EQ(found[3] & 0x7fc0, 0x7fc0);
  EXPECT_EQ(found[4], 0xbf80);
}

// Far more values at once than a state has room for on the stack.
TEST_P(MapTest, ManyLiveValues) {
  Builder code;
  const auto x = code.Load<double>(0);
  std::vector<uint16_t> values;
  for (int i = 0; i < 400; ++i) {
    values.push_back(code.Add(Opcode::kAdd, RegisterType::kF64,
                              {x, code.Constant<double>(i)}));
  }
  uint16_t sum = values[0];
  for (size_t i = values.size(); i-- > 1;) {
    sum = code.Add(Opcode::kAdd, RegisterType::kF64, {sum, values[i]});
  }
  code.map.outputs = {sum};
  std::vector<double> a(1000), found(1000);
  for (int i = 0; i < 1000; ++i) a[i] = i;
  const Operand dense = Strided(0, program::kF64, {1000}, {1});
  Setting setting{{1000}, {dense}, {dense}};
  setting.results[0].view.base = 1;
  RunMap(table(), setting, code.map, {a.data(), found.data()}, 2);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(found[i], 400.0 * i + 79800);
}

TEST_P(MapTest, EmptySpaceDoesNothing) {
  Builder code;
  code.map.outputs = {code.Load<float>(0)};
  const Operand dense = Strided(0, program::kF32, {0, 3}, {3, 1});
  RunMap(table(), {{0, 3}, {dense}, {dense}}, code.map, {nullptr});
}

TEST_P(MapTest, RefusesWhatDoesNotFit) {
  Builder code;
  code.map.outputs = {code.Load<int32_t>(0)};
  const Operand floats = Strided(0, program::kF32, {3}, {1});
  const Operand integers = Strided(0, program::kI32, {3}, {1});
  const auto message = [&](Setting setting) {
    const KernelOr kernel = Make(table(), setting, code.map);
    return kernel.ok() ? "" : kernel.status().message();
  };
  EXPECT_NE(message({{3}, {floats}, {integers}}).find("operand 0"),
            std::string::npos);
  EXPECT_NE(message({{3}, {integers}, {floats}}).find("output 0"),
            std::string::npos);
  EXPECT_NE(message({{3}, {integers}, {}}).find("1 outputs for 0 results"),
            std::string::npos);
  EXPECT_EQ(message({{3}, {integers}, {integers}}), "");
}

}  // namespace
}  // namespace ipu::model
