#include "jaxlib/ipu/runtime/program/register_code.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/register_division.h"
#include "jaxlib/ipu/runtime/program/register_narrow.h"
#include "jaxlib/ipu/runtime/program/register_rare.h"
#include "jaxlib/ipu/runtime/program/register_simplify.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

constexpr RegisterType F32 = RegisterType::kF32;
constexpr RegisterType I32 = RegisterType::kI32;
constexpr RegisterType U32 = RegisterType::kU32;
constexpr RegisterType I64 = RegisterType::kI64;

std::string Encode(std::initializer_list<Instruction> code) {
  std::string bytes;
  for (const Instruction& i : code) {
    char b[16];
    b[0] = static_cast<char>(i.op);
    b[1] = static_cast<char>(i.type);
    std::memcpy(b + 2, i.values, 6);
    std::memcpy(b + 8, &i.imm, 8);
    bytes.append(b, sizeof b);
  }
  return bytes;
}

StatusOr<RegisterCode> Decode(std::initializer_list<Instruction> code,
                              const std::vector<uint16_t>& outputs) {
  return DecodeRegisterCode(Encode(code), outputs, 2, 1);
}

// The opcodes that remain after Simplify.
std::vector<Opcode> Simplified(std::initializer_list<Instruction> code,
                               const std::vector<uint16_t>& outputs,
                               const std::vector<bool>& uniform = {false,
                                                                   false}) {
  auto decoded = Decode(code, outputs);
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  Simplify(*decoded, uniform);
  std::vector<Opcode> ops;
  for (const Instruction& i : decoded->code) ops.push_back(i.op);
  return ops;
}

void ExpectRefused(std::initializer_list<Instruction> code,
                   const std::vector<uint16_t>& outputs,
                   const std::string& why) {
  const auto decoded = Decode(code, outputs);
  ASSERT_FALSE(decoded.ok()) << why;
  EXPECT_EQ(decoded.status().code(), Code::kDataLoss);
  EXPECT_NE(decoded.status().message().find(why), std::string::npos)
      << decoded.status().message();
}

const Instruction kLoad0{Opcode::kLoad, U32, 0, 0, 0, 0};
const Instruction kLoad1{Opcode::kLoad, U32, 0, 0, 0, 1};

Instruction Constant(uint64_t bits) {
  return {Opcode::kConst, U32, 0, 0, 0, bits};
}
Instruction Unary(Opcode op, uint16_t a) { return {op, U32, a, 0, 0, 0}; }
Instruction Binary(Opcode op, uint16_t a, uint16_t b) {
  return {op, U32, a, b, 0, 0};
}

TEST(RegisterCode, RoundTrips) {
  const auto decoded =
      Decode({kLoad0, Constant(7), Binary(Opcode::kAdd, 0, 1)}, {2, 0});
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->code.size(), 3u);
  EXPECT_EQ(decoded->code[1].imm, 7u);
  EXPECT_EQ(decoded->code[2].values[1], 1);
  EXPECT_EQ(decoded->outputs, (std::vector<uint16_t>{2, 0}));
}

TEST(RegisterCode, RefusesMalformedCode) {
  ExpectRefused({Unary(Opcode{255}, 0)}, {0}, "unknown opcode 255");
  ExpectRefused({Unary(kRotateLeft, 0)}, {0}, "unknown opcode 200");
  ExpectRefused({{Opcode::kConst, RegisterType{9}, 0, 0, 0, 0}}, {0},
                "unknown type 9");
  ExpectRefused({kLoad0, Binary(Opcode::kAdd, 0, 1)}, {1}, "not defined yet");
  ExpectRefused({kLoad0, Binary(Opcode::kAdd, 0, 9)}, {1}, "not defined yet");
  ExpectRefused({kLoad0, {Opcode::kAdd, F32, 0, 0, 0, 0}}, {1},
                "takes F32 but value 0 is U32");
  ExpectRefused({kLoad0, Unary(Opcode::kExp, 0)}, {1}, "is not defined");
  ExpectRefused(
      {{Opcode::kConst, F32, 0, 0, 0, 0}, {Opcode::kXor, F32, 0, 0, 0, 0}}, {1},
      "is not defined");
  ExpectRefused({{Opcode::kLoad, U32, 0, 0, 0, 2}}, {0}, "operand 2 of 2");
  ExpectRefused({{Opcode::kIota, U32, 0, 0, 0, 1}}, {0}, "dimension 1 of 1");
  ExpectRefused({kLoad0, {Opcode::kConvert, F32, 0, 17, 0, 0}}, {1},
                "unknown type 17");
  ExpectRefused({kLoad0, {Opcode::kBitcast, I64, 0, 3, 0, 0}}, {1}, "width");
  ExpectRefused({kLoad0, Unary(Opcode::kWrapI8, 0)}, {1}, "is not defined");
  ExpectRefused({kLoad0}, {1}, "output 0 is value 1 of 1");
  EXPECT_FALSE(DecodeRegisterCode("too short", {}, 0, 0).ok());
}

TEST(RegisterCode, ResultTypes) {
  const Instruction less{Opcode::kLt, I64, 0, 0, 0, 0};
  EXPECT_EQ(ResultType(less), U32);
  const Instruction finite{Opcode::kIsFinite, F32, 0, 0, 0, 0};
  EXPECT_EQ(ResultType(finite), U32);
  const Instruction from_bits{Opcode::kFromBitsF16, F32, 0, 0, 0, 0};
  EXPECT_EQ(ResultType(from_bits), F32);
}

TEST(Simplify, DropsDeadCode) {
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Unary(Opcode::kNot, 1),
                        Unary(Opcode::kNegate, 0)},
                       {3}),
            (std::vector<Opcode>{Opcode::kLoad, Opcode::kNegate}));
}

TEST(Simplify, RecognisesRotations) {
  for (const Opcode join : {Opcode::kOr, Opcode::kXor, Opcode::kAdd}) {
    EXPECT_EQ(
        Simplified(
            {kLoad0, Constant(13), Constant(19), Binary(Opcode::kShl, 0, 1),
             Binary(Opcode::kShrLogical, 0, 2), Binary(join, 4, 3)},
            {5}),
        (std::vector<Opcode>{Opcode::kLoad, kRotateLeft}));
  }
  // Not rotations: shifts by 13 and 20 bits, and shifts of two different
  // values.
  EXPECT_EQ(Simplified(
                {kLoad0, Constant(13), Constant(20), Binary(Opcode::kShl, 0, 1),
                 Binary(Opcode::kShrLogical, 0, 2), Binary(Opcode::kOr, 3, 4)},
                {5})
                .size(),
            6u);
  EXPECT_EQ(
      Simplified({kLoad0, Constant(13), Constant(19),
                  Binary(Opcode::kShl, 0, 1), kLoad1,
                  Binary(Opcode::kShrLogical, 4, 2), Binary(Opcode::kOr, 3, 5)},
                 {6})
          .size(),
      7u);
}

TEST(Simplify, ARoundOfThreefryIsTwoInstructions) {
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Constant(13), Constant(19),
                        Binary(Opcode::kAdd, 0, 1), Binary(Opcode::kShl, 1, 2),
                        Binary(Opcode::kShrLogical, 1, 3),
                        Binary(Opcode::kOr, 5, 6), Binary(Opcode::kXor, 4, 7)},
                       {4, 8}),
            (std::vector<Opcode>{Opcode::kLoad, Opcode::kLoad, Opcode::kAdd,
                                 kRotateXor}));
}

TEST(Simplify, DividesByConstantsInOneInstruction) {
  EXPECT_EQ(Simplified({kLoad0, Constant(7), Binary(Opcode::kDiv, 0, 1)}, {2}),
            (std::vector<Opcode>{Opcode::kLoad, Opcode::kConst, kDivideBy}));
  EXPECT_EQ(Simplified({kLoad0, Constant(7), Binary(Opcode::kRem, 0, 1)}, {2}),
            (std::vector<Opcode>{Opcode::kLoad, Opcode::kConst, Opcode::kConst,
                                 kRemainderBy}));
  EXPECT_EQ(
      Simplified({kLoad0, Constant(0), Binary(Opcode::kDiv, 0, 1)}, {2}).back(),
      Opcode::kDiv);
}

// By powers of two whose reciprocals are floats, and not denormal.
TEST(Simplify, MultipliesFloatsByReciprocalsThatAreExact) {
  const auto reciprocal = [](float divisor) -> float {
    const auto bits = std::bit_cast<uint32_t>(divisor);
    auto code = Decode({{Opcode::kLoad, F32, {}, 0},
                        {Opcode::kConst, F32, {}, bits},
                        {Opcode::kDiv, F32, {0, 1, 0}, 0}},
                       {2});
    EXPECT_TRUE(code.ok());
    DivideByMultiplying(*code);
    const Instruction& last = code->code.back();
    if (last.op == Opcode::kDiv) return 0;
    EXPECT_EQ(last.op, Opcode::kMul);
    return std::bit_cast<float>(
        static_cast<uint32_t>(code->code[last.values[1]].imm));
  };
  EXPECT_EQ(reciprocal(0.25f), 4);
  EXPECT_EQ(reciprocal(-8), -0.125f);
  EXPECT_EQ(reciprocal(1), 1);
  EXPECT_EQ(reciprocal(0x1p-126f), 0x1p126f);
  EXPECT_EQ(reciprocal(0x1p126f), 0x1p-126f);
  for (const float other : {0x1p127f, 0x1p-127f, 0.f, -0.f, 3.f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(reciprocal(other), 0) << other;
  }
}

TEST(Simplify, TheDivisorFollowsFromTheMultiplier) {
  std::vector<uint32_t> divisors;
  for (uint32_t d = 2; d < 3000; ++d) divisors.push_back(d);
  for (int k = 12; k < 32; ++k) {
    for (uint32_t d : {-1, 0, 1}) divisors.push_back((uint32_t{1} << k) + d);
  }
  for (RegisterType type : {I32, U32}) {
    for (uint32_t d : divisors) {
      if (type == I32 && d > uint32_t{1} << 31) continue;
      auto code = Decode({{Opcode::kLoad, type, {}, 0},
                          {Opcode::kConst, type, {}, d},
                          {Opcode::kDiv, type, {0, 1, 0}, 0}},
                         {2});
      ASSERT_TRUE(code.ok());
      DivideByMultiplying(*code);
      const auto found =
          std::find_if(code->code.begin(), code->code.end(),
                       [](const auto& i) { return i.op == kDivideBy; });
      ASSERT_NE(found, code->code.end()) << d;
      const Instruction& by = code->code[found->values[1]];
      EXPECT_EQ(DivisorOf(*found, static_cast<uint32_t>(by.imm)), d);
    }
  }
}

TEST(Simplify, FusesArithmeticWithOneUse) {
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Binary(Opcode::kMul, 0, 1),
                        Binary(Opcode::kAdd, 0, 2)},
                       {3}),
            (std::vector<Opcode>{Opcode::kLoad, Opcode::kLoad, kMulAdd}));
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Binary(Opcode::kMul, 0, 1),
                        Binary(Opcode::kSub, 0, 2)},
                       {3})
                .back(),
            kNegMulAdd);
  // The product is also an output.
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Binary(Opcode::kMul, 0, 1),
                        Binary(Opcode::kAdd, 0, 2)},
                       {3, 2})
                .back(),
            Opcode::kAdd);
  // The product is uniform, so it is computed only once and not fused.
  EXPECT_EQ(Simplified({kLoad0, kLoad1, Binary(Opcode::kMul, 1, 1),
                        Binary(Opcode::kAdd, 0, 2)},
                       {3}, {false, true})
                .back(),
            Opcode::kAdd);
}

TEST(Simplify, FindsUniformValues) {
  const auto decoded = Decode({kLoad0,
                               kLoad1,
                               Constant(3),
                               Binary(Opcode::kAdd, 1, 2),
                               Binary(Opcode::kAdd, 0, 3),
                               {Opcode::kIota, U32, 0, 0, 0, 0}},
                              {4, 5});
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(UniformValues(*decoded, {false, true}),
            (std::vector<bool>{false, true, true, true, false, false}));
}

TEST(LeaveRoundingToStores, OnlyWhereTheStoreRoundsTheSame) {
  const Instruction load{Opcode::kLoad, F32, 0, 0, 0, 0};
  const Instruction round{Opcode::kRoundBf16, F32, 0, 0, 0, 0};
  auto decoded = Decode({load, round}, {1, 1, 1});
  ASSERT_TRUE(decoded.ok());
  LeaveRoundingToStores(*decoded, {DType::kBF16, DType::kF32, DType::kNone});
  EXPECT_EQ(decoded->outputs, (std::vector<uint16_t>{0, 1, 1}));

  const Instruction integer{Opcode::kLoad, I32, 0, 0, 0, 0};
  const Instruction wrap{Opcode::kWrapI8, I32, 0, 0, 0, 0};
  decoded = Decode({integer, wrap}, {1, 1});
  ASSERT_TRUE(decoded.ok());
  LeaveRoundingToStores(*decoded, {DType::kI8, DType::kI16});
  EXPECT_EQ(decoded->outputs, (std::vector<uint16_t>{0, 1}));
}

// What is left of code over an iteration space after its integers are narrowed.
std::vector<Instruction> Narrowed(std::initializer_list<Instruction> code,
                                  uint16_t output, int64_t extent) {
  auto decoded = Decode(code, {output});
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  NarrowIntegers(*decoded, {extent});
  return decoded->code;
}

TEST(NarrowIntegers, CountersAreComputedIn32Bits) {
  constexpr RegisterType U64 = RegisterType::kU64;
  const auto from = static_cast<uint16_t>(U64);
  const Instruction iota{Opcode::kIota, U64, {}, 0};
  const Instruction three{Opcode::kConst, U64, {}, 3};
  const Instruction shift{Opcode::kConst, U64, {}, 32};
  const auto low = Narrowed({iota,
                             three,
                             {Opcode::kMul, U64, {0, 1}, 0},
                             {Opcode::kAdd, U64, {2, 1}, 0},
                             {Opcode::kConvert, U32, {3, from}, 0}},
                            4, 1000);
  for (const Instruction& i : low) EXPECT_EQ(i.type, U32);
  EXPECT_EQ(low[0].op, Opcode::kIota);

  const auto high = Narrowed({iota,
                              shift,
                              {Opcode::kShrLogical, U64, {0, 1}, 0},
                              {Opcode::kConvert, U32, {2, from}, 0}},
                             3, int64_t{1} << 32);
  ASSERT_EQ(high.size(), 1u);
  EXPECT_EQ(high[0].op, Opcode::kConst);
  EXPECT_EQ(high[0].imm, 0u);

  const auto as_signed =
      Narrowed({iota, {Opcode::kConvert, I32, {0, from}, 0}}, 1, 1000);
  ASSERT_EQ(as_signed.size(), 2u);
  EXPECT_EQ(as_signed[1].op, Opcode::kBitcast);
}

TEST(NarrowIntegers, WhatMayExceedThemIsKept) {
  constexpr RegisterType U64 = RegisterType::kU64;
  const auto from = static_cast<uint16_t>(U64);
  const Instruction iota{Opcode::kIota, U64, {}, 0};
  const Instruction large{Opcode::kConst, U64, {}, uint64_t{1} << 31};
  const Instruction sixteen{Opcode::kConst, U64, {}, 16};
  const auto type_of_sum = [&](const Instruction& last, int64_t extent) {
    return Narrowed({iota,
                     large,
                     sixteen,
                     {Opcode::kMul, U64, {0, 1}, 0},
                     last,
                     {Opcode::kShrLogical, U64, {4, 2}, 0},
                     {Opcode::kConvert, U32, {5, from}, 0}},
                    6, extent)[0]
        .type;
  };
  const Instruction add{Opcode::kAdd, U64, {3, 1}, 0};
  EXPECT_EQ(type_of_sum(add, 1), U32);
  EXPECT_EQ(type_of_sum(add, 2), U64);  // 2^31 + 2^31
  EXPECT_EQ(Narrowed({iota, {Opcode::kConvert, U32, {0, from}, 0}}, 1,
                     (int64_t{1} << 32) + 1)[0]
                .type,
            U64);
}

// x, y, a condition, a chain from x of so many instructions, something of y,
// and a choice of both.
RegisterCode Choice(const Instruction& condition, uint16_t length,
                    bool chain_if) {
  RegisterCode program{
      {{Opcode::kLoad, F32, {}, 0}, {Opcode::kLoad, F32, {}, 1}, condition},
      {}};
  for (uint16_t k = 0; k < length; ++k) {
    const uint16_t last = k == 0 ? 0 : k + 2;
    program.code.push_back({Opcode::kMul, F32, {last, 1}, 0});
  }
  const uint16_t chain = length + 2, other = length + 3;
  program.code.push_back({Opcode::kNegate, F32, {1}, 0});
  Instruction select{Opcode::kSelect, F32, {2, chain, other}, 0};
  if (!chain_if) std::swap(select.values[1], select.values[2]);
  program.code.push_back(select);
  program.outputs = {static_cast<uint16_t>(length + 4)};
  return program;
}

TEST(RareSides, AreWhatFewFloatsNeed) {
  const auto found = [](const Instruction& condition, uint16_t length,
                        bool chain_if) {
    RegisterCode program = Choice(condition, length, chain_if);
    return GatherRareSides(program);
  };
  const Instruction equal{Opcode::kEq, F32, {0, 1}, 0};
  const Instruction nan{Opcode::kNe, F32, {0, 0}, 0};
  const Instruction finite{Opcode::kIsFinite, F32, {0}, 0};
  const Instruction less{Opcode::kLt, F32, {0, 1}, 0};
  for (const Instruction& rare : {equal, nan}) {
    EXPECT_EQ(found(rare, 20, true).size(), 1u);
    EXPECT_EQ(found(rare, 20, false).size(), 0u);
    EXPECT_EQ(found(rare, 5, true).size(), 0u);  // too short
  }
  EXPECT_EQ(found(finite, 20, true).size(), 0u);
  EXPECT_EQ(found(finite, 20, false).size(), 1u);
  EXPECT_EQ(found(less, 20, true).size(), 0u);
  EXPECT_EQ(found(less, 20, false).size(), 0u);
  Instruction integers = equal;
  integers.type = I32;
  EXPECT_EQ(found(integers, 20, true).size(), 0u);
}

TEST(RareSides, OfSeveralComparisons) {
  // Whether a choice by two comparisons has a side where both, or one of them,
  // are `what`.
  const auto found = [](Opcode op, Opcode a, Opcode b, bool what) {
    RegisterCode program = Choice({a, F32, {0, 1}, 0}, 20, what);
    Instruction select = program.code.back();
    program.code.back() = {b, F32, {0, 1}, 0};
    const auto second = static_cast<uint16_t>(program.code.size() - 1);
    program.code.push_back({op, U32, {2, second}, 0});
    select.values[0] = second + 1;
    program.code.push_back(select);
    program.outputs = {static_cast<uint16_t>(second + 2)};
    return GatherRareSides(program).size() == 1;
  };
  using enum Opcode;
  EXPECT_TRUE(found(kAnd, kEq, kLt, true));
  EXPECT_FALSE(found(kOr, kEq, kLt, true));
  EXPECT_TRUE(found(kOr, kEq, kEq, true));
  EXPECT_TRUE(found(kOr, kNe, kLt, false));
  EXPECT_FALSE(found(kAnd, kNe, kLt, false));
  EXPECT_TRUE(found(kAnd, kNe, kNe, false));
  EXPECT_FALSE(found(kAnd, kEq, kEq, false));
}

TEST(RareSides, AreNextToEachOther) {
  RegisterCode program = Choice({Opcode::kEq, F32, {0, 1}, 0}, 20, true);
  // Something else in the middle of the chain, and an output.
  program.code.insert(program.code.begin() + 10,
                      {Opcode::kNegate, F32, {0}, 0});
  for (size_t at = 11; at < program.code.size(); ++at) {
    for (uint16_t& value : program.code[at].operands()) value += value >= 10;
  }
  program.outputs = {static_cast<uint16_t>(program.code.size() - 1), 10};
  const std::vector<RareSide> sides = GatherRareSides(program);
  ASSERT_EQ(sides.size(), 1u);
  EXPECT_EQ(sides[0].end - sides[0].begin, 20);
  EXPECT_TRUE(sides[0].when);
  EXPECT_EQ(program.code[sides[0].condition].op, Opcode::kEq);
  for (size_t at = sides[0].begin; at < sides[0].end; ++at) {
    EXPECT_EQ(program.code[at].op, Opcode::kMul);
  }
  EXPECT_EQ(program.code[program.outputs[0]].op, Opcode::kSelect);
  EXPECT_EQ(program.code[program.outputs[1]].op, Opcode::kNegate);
  EXPECT_EQ(program.code[program.outputs[1]].values[0], 0);
}

TEST(RareSides, AreNotUsedElsewhere) {
  RegisterCode program = Choice({Opcode::kEq, F32, {0, 1}, 0}, 20, true);
  program.outputs.push_back(22);  // the end of the chain
  EXPECT_TRUE(GatherRareSides(program).empty());
}

// A side that waits for a long chain after its first choice, and comparisons of
// which there are 2^100 ways to the first one.
TEST(RareSides, OfDeepPrograms) {
  RegisterCode program = Choice({Opcode::kEq, F32, {0, 1}, 0}, 20, true);
  const auto add = [&](const Instruction& i) {
    program.code.push_back(i);
    return static_cast<uint16_t>(program.code.size() - 1);
  };
  uint16_t all = 2;
  for (int k = 0; k < 100; ++k) all = add({Opcode::kAnd, U32, {all, all}, 0});
  program.outputs.push_back(add({Opcode::kSelect, F32, {all, 0, 1}, 0}));
  uint16_t last = 0;
  for (int k = 0; k < 60'000; ++k)
    last = add({Opcode::kNegate, F32, {last}, 0});
  program.outputs.push_back(last);
  const uint16_t sum = add({Opcode::kAdd, F32, {22, last}, 0});
  program.outputs.push_back(add({Opcode::kSelect, F32, {2, sum, 0}, 0}));
  const std::vector<RareSide> sides = GatherRareSides(program);
  ASSERT_EQ(sides.size(), 1u);
  EXPECT_EQ(sides[0].end - sides[0].begin, 21);
  EXPECT_GT(sides[0].begin, 60'000);
}

// A second part of the side depends on the first choice.
TEST(RareSides, DoNotWaitForTheirOwnChoices) {
  RegisterCode program = Choice({Opcode::kEq, F32, {0, 1}, 0}, 20, true);
  const auto first = static_cast<uint16_t>(program.code.size() - 1);
  program.code.push_back({Opcode::kNegate, F32, {first}, 0});
  const auto later = static_cast<uint16_t>(first + 1);
  program.code.push_back({Opcode::kSelect, F32, {2, later, 0}, 0});
  program.outputs = {first, static_cast<uint16_t>(later + 1)};
  const size_t size = program.code.size();
  EXPECT_TRUE(GatherRareSides(program).empty());
  EXPECT_EQ(program.code.size(), size);
}

}  // namespace
}  // namespace ipu::program
