// Integers of 8 and 16 bits, whose machine code has lanes of as many: division
// by constants for all values, and random programs against single elements,
// which are never compiled to machine code.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model {
namespace {

template <typename T>
constexpr RegisterType kRegister =
    std::is_signed_v<T> ? RegisterType::kI32 : RegisterType::kU32;
template <typename T>
constexpr DType kDtype =
    sizeof(T) == 1 ? (std::is_signed_v<T> ? DType::kI8 : DType::kU8)
                   : (std::is_signed_v<T> ? DType::kI16 : DType::kU16);

template <typename T>
std::vector<T> AllValues() {
  std::vector<T> values(size_t{1} << (8 * sizeof(T)));
  std::iota(values.begin(), values.end(), std::numeric_limits<T>::min());
  return values;
}

// Checks x / d, x % d, and d more where x - x / d * d is negative, for all x.
template <typename T>
void CheckDivision(const Factories& table, int64_t d) {
  std::vector<T> x = AllValues<T>();
  std::vector<T> quotients(x.size()), remainders(x.size()), rests(x.size());
  const auto n = static_cast<int64_t>(x.size());
  Builder code;
  const uint16_t value = code.Add(Opcode::kLoad, kRegister<T>, {}, 0);
  const uint16_t by =
      code.Add(Opcode::kConst, kRegister<T>, {}, static_cast<uint32_t>(d));
  const auto add = [&](Opcode op, std::vector<uint16_t> operands) {
    return code.Add(op, kRegister<T>, std::move(operands));
  };
  const uint16_t quotient = add(Opcode::kDiv, {value, by});
  const uint16_t product = add(Opcode::kMul, {quotient, by});
  const uint16_t rest = add(Opcode::kSub, {value, product});
  const uint16_t zero = code.Add(Opcode::kConst, kRegister<T>, {}, 0);
  const uint16_t is_negative = add(Opcode::kLt, {rest, zero});
  const uint16_t more = add(Opcode::kAdd, {rest, by});
  code.map.outputs = {quotient, add(Opcode::kRem, {value, by}),
                      add(Opcode::kSelect, {is_negative, more, rest})};
  Setting setting{{n}, {Strided(0, kDtype<T>, {n}, {1})}, {}};
  setting.results = {Strided(1, kDtype<T>, {n}, {1}),
                     Strided(2, kDtype<T>, {n}, {1}),
                     Strided(3, kDtype<T>, {n}, {1})};
  RunMap(table, setting, code.map,
         {x.data(), quotients.data(), remainders.data(), rests.data()});
  for (size_t k = 0; k < x.size(); ++k) {
    ASSERT_EQ(quotients[k], static_cast<T>(x[k] / d)) << +x[k] << " / " << d;
    const int64_t remainder = x[k] % d;
    ASSERT_EQ(remainders[k], static_cast<T>(remainder)) << +x[k] << " % " << d;
    ASSERT_EQ(rests[k], static_cast<T>(remainder + (remainder < 0 ? d : 0)))
        << +x[k] << " % " << d;
  }
}

TEST_P(MapTest, DividesBytesByEveryConstant) {
  for (int64_t d = 2; d <= 300; ++d) {
    CheckDivision<int8_t>(table(), d);
    CheckDivision<int8_t>(table(), -d);
    CheckDivision<uint8_t>(table(), d);
  }
}

TEST_P(MapTest, DividesWordsByConstants) {
  std::mt19937 random(0);
  std::vector<int64_t> divisors = {2,     3,     5,     6,     7,     10,
                                   11,    641,   1000,  16384, 32766, 32767,
                                   32768, 32769, 65534, 65535, 65536, 1 << 30};
  for (int k = 0; k < 40; ++k) divisors.push_back(2 + random() % 70'000);
  for (int64_t d : divisors) {
    CheckDivision<int16_t>(table(), d);
    CheckDivision<int16_t>(table(), -d);
    CheckDivision<uint16_t>(table(), d);
    if (HasFailure()) return;
  }
}

// A program of one register type over operands and results of 8 and 16 bits.
class Drawn {
 public:
  // `bytes`: with no elements of 16 bits.
  Drawn(std::mt19937& random, bool bytes)
      : random_(random),
        bytes_(bytes),
        type_(Below(2) ? RegisterType::kI32 : RegisterType::kU32) {
    for (uint32_t k = 0, count = 1 + Below(3); k < count; ++k) {
      operands_.push_back({DrawDtype(), Below(5) == 0});
      Push(Opcode::kLoad, {}, k);
    }
    for (uint32_t k = 0, count = 1 + Below(12); k < count; ++k) AddAny();
    for (uint32_t j = 0, count = 1 + Below(3); j < count; ++j) {
      const bool flag = !flags_.empty() && Below(3) == 0;
      code_.map.outputs.push_back(flag ? flags_.back() : Value());
      results_.push_back(flag ? DType::kBool : DrawDtype());
    }
  }

  void Check(const Factories& table) {
    const int64_t n = 2 + Below(220);
    Data data = NewData(n);
    Run(table, n, data, 0);
    for (int64_t i = 0; i < n; ++i) {
      Data one = data;
      for (auto& bytes : one.results) bytes.assign(bytes.size(), 0);
      Run(table, 1, one, i);
      for (size_t j = 0; j < results_.size(); ++j) {
        const uint32_t item = ItemSize(results_[j]);
        ASSERT_EQ(std::memcmp(data.results[j].data() + i * item,
                              one.results[j].data(), item),
                  0)
            << "result " << j << ", element " << i << " of " << n;
      }
    }
  }

 private:
  struct Loaded {
    DType dtype;
    bool uniform;
  };
  struct Data {
    std::vector<std::vector<uint8_t>> operands, results;
  };

  uint32_t Below(size_t n) { return random_() % n; }

  DType DrawDtype() {
    if (bytes_) return type_ == RegisterType::kI32 ? DType::kI8 : DType::kU8;
    if (type_ == RegisterType::kI32) return Below(2) ? DType::kI8 : DType::kI16;
    return Below(2) ? DType::kU8 : DType::kU16;
  }
  uint16_t Push(Opcode op, std::vector<uint16_t> operands, uint64_t imm = 0) {
    const uint16_t value = code_.Add(op, type_, std::move(operands), imm);
    values_.push_back(value);
    return value;
  }
  uint16_t Constant(int64_t value) {
    return code_.Add(Opcode::kConst, type_, {}, static_cast<uint32_t>(value));
  }
  uint16_t Value() {
    const size_t last = std::min<size_t>(values_.size(), 1 + Below(5));
    return values_[values_.size() - 1 - Below(last)];
  }

  void AddAny() {
    constexpr Opcode kBinary[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMul,
                                  Opcode::kAnd, Opcode::kOr,  Opcode::kXor,
                                  Opcode::kMax, Opcode::kMin};
    constexpr Opcode kUnary[] = {Opcode::kNegate, Opcode::kAbs, Opcode::kSign,
                                 Opcode::kNot};
    constexpr Opcode kShifts[] = {Opcode::kShl, Opcode::kShrLogical,
                                  Opcode::kShrArithmetic};
    constexpr Opcode kComparisons[] = {Opcode::kEq, Opcode::kNe, Opcode::kLt,
                                       Opcode::kLe, Opcode::kGt, Opcode::kGe};
    constexpr int64_t kNumbers[] = {0,   1,   2,     3,     7,  100,
                                    255, 256, 32767, 65535, -1, -128};
    const uint16_t a = Value();
    const uint16_t b = Below(2) ? Value() : Constant(kNumbers[Below(12)]);
    switch (Below(7)) {
      case 0:
      case 1:
        Push(kBinary[Below(8)], {a, b});
        break;
      case 2:
        Push(kUnary[Below(4)], {a});
        break;
      case 3:
        Push(kShifts[Below(3)], {a, Constant(Below(34))});
        break;
      case 4:
        flags_.push_back(code_.Add(kComparisons[Below(6)], type_, {a, b}));
        if (Below(4) > 0) Push(Opcode::kSelect, {flags_.back(), Value(), b});
        return;
      case 5:
        if (bytes_ && Below(2)) {
          Push(Opcode::kMul, {a, Constant(Below(256))});
          break;
        }
        Push(Below(2) ? Opcode::kDiv : Opcode::kRem,
             {a, Constant(2 + Below(400))});
        break;
      default:
        Push(Opcode::kClamp, {Constant(kNumbers[Below(10)]), a, b});
    }
    if (!bytes_ && Below(3) == 0) return;
    const bool bytes = bytes_ ? Below(8) > 0 : Below(2);
    Push(type_ == RegisterType::kI32
             ? (bytes ? Opcode::kWrapI8 : Opcode::kWrapI16)
             : (bytes ? Opcode::kWrapU8 : Opcode::kWrapU16),
         {values_.back()});
  }

  Data NewData(int64_t n) {
    Data data;
    for (const Loaded& operand : operands_) {
      data.operands.emplace_back((operand.uniform ? 1 : n) *
                                 ItemSize(operand.dtype));
      for (uint8_t& byte : data.operands.back()) {
        constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
        byte = Below(3) ? static_cast<uint8_t>(random_()) : kEdges[Below(5)];
      }
    }
    for (DType dtype : results_) {
      data.results.emplace_back(n * ItemSize(dtype));
    }
    return data;
  }

  // Runs the program on `n` elements starting at `begin`.
  void Run(const Factories& table, int64_t n, Data& data, int64_t begin) {
    Setting setting{{n}, {}, {}};
    std::vector<void*> bases;
    for (size_t k = 0; k < operands_.size(); ++k) {
      const auto [dtype, uniform] = operands_[k];
      const auto base = static_cast<uint32_t>(bases.size());
      setting.operands.push_back(Strided(base, dtype, {n}, {1}));
      if (uniform) setting.operands.back().dims = {-1};
      bases.push_back(data.operands[k].data() +
                      (uniform ? 0 : begin * ItemSize(dtype)));
    }
    for (size_t j = 0; j < results_.size(); ++j) {
      setting.results.push_back(
          Strided(static_cast<uint32_t>(bases.size()), results_[j], {n}, {1}));
      bases.push_back(data.results[j].data());
    }
    RunMap(table, setting, code_.map, bases);
  }

  std::mt19937& random_;
  const bool bytes_;
  const RegisterType type_;
  Builder code_;
  std::vector<uint16_t> values_, flags_;
  std::vector<Loaded> operands_;
  std::vector<DType> results_;
};

TEST_P(MapTest, RandomProgramsOfNarrowIntegersEqualSingleElements) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Drawn(random, /*bytes=*/false).Check(table());
    ASSERT_FALSE(HasFailure()) << "program " << round;
  }
}

TEST_P(MapTest, RandomProgramsOfBytesEqualSingleElements) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    Drawn(random, /*bytes=*/true).Check(table());
    ASSERT_FALSE(HasFailure()) << "program " << round;
  }
}

}  // namespace
}  // namespace ipu::model
