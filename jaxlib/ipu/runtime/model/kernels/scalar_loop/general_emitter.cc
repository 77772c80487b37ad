#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/general_emitter.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_division.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/step_emitter.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;
using program::RegisterType;

constexpr int kLeft = 4, kLogicalRight = 5, kArithmeticRight = 7;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

bool IsSigned(const TapeStep& s) {
  return s.instruction.type == RegisterType::kI32;
}

bool IsComparison(Opcode op) { return op >= Opcode::kEq && op <= Opcode::kGe; }

// The flags' condition for a comparison.
Condition ConditionOf(const TapeStep& s) {
  using enum Condition;
  constexpr Condition kOfSigned[] = {kEqual,     kNotEqual, kLess,
                                     kLessEqual, kGreater,  kGreaterEqual};
  constexpr Condition kOfUnsigned[] = {kEqual,      kNotEqual, kBelow,
                                       kBelowEqual, kAbove,    kAboveEqual};
  const int k = OpNumber(s.instruction.op) - OpNumber(Opcode::kEq);
  return IsSigned(s) ? kOfSigned[k] : kOfUnsigned[k];
}

int BytesOf(DType dtype) {
  return dtype == DType::kU16 || dtype == DType::kI16 ? 2 : 1;
}

}  // namespace

void GeneralEmitter::Emit(size_t k) {
  const TapeStep& s = steps_[k];
  registers_.MakeGeneralRoom(k, Needed(s));
  Held made;
  switch (s.kind) {
    case TapeStep::kCompute:
      Compute(k, made);
      break;
    case TapeStep::kLoad:
      Load(s, made);
      break;
    case TapeStep::kStore:
      Store(k, made);
      break;
    default: {
      const Address window = windows_.Find(s, s.step.operands[1]);
      made.general = registers_.NewGeneral();
      body().Load32(*made.general, window);
    }
  }
  registers_.Define(k, made);
}

// How many registers have to be free for a step: those of its operands but for
// most constants, its result and a clamped index.
int GeneralEmitter::Needed(const TapeStep& s) const {
  int needed = s.kind == TapeStep::kSlice ? 2 : 1;
  for (size_t j = 0; j < s.NumOperands(); ++j) {
    const bool is_constant = registers_.ConstantWord(s, j).has_value();
    const Opcode op = s.instruction.op;
    const bool reads_constant = op == Opcode::kSelect || op == Opcode::kMax ||
                                op == Opcode::kMin || op == Opcode::kClamp ||
                                (IsComparison(op) && j == 0);
    needed += s.ReadsRegister(j) && !HeldOf(s, j).general &&
              (!is_constant || reads_constant);
  }
  return needed;
}

void GeneralEmitter::Load(const TapeStep& s, Held& made) {
  const Held& stored = HeldOf(s, 0);
  if (s.dtype == DType::kBool && stored.is_bool && stored.general) {
    made.general = stored.general;
    made.is_flag = stored.is_flag;
    return;
  }
  const bool is_signed = s.dtype == DType::kI8 || s.dtype == DType::kI16;
  made.general = registers_.NewGeneral();
  body().LoadSmall(*made.general, BytesOf(s.dtype),
                   registers_.At(registers_.Operand(s, 0)), is_signed);
}

void GeneralEmitter::Store(size_t k, Held& made) {
  const TapeStep& s = steps_[k];
  const uint16_t to = registers_.Result(s);
  const std::optional<Condition> condition = HeldOf(s, 0).condition;
  if (condition) {
    body().SetIf(*condition, registers_.At(to));
    if (!registers_.IsReadAfter(k)) return;
    made.is_bool = true;
    // The loop's jump may take it from the flags.
    if (registers_.IsPredicate(s) &&
        registers_.NextReader(s, k + 1) == steps_.size() &&
        FlagsEnd(k, registers_.Operand(s, 0)) == steps_.size()) {
      made.condition = condition;
      return;
    }
    made.general = registers_.NewGeneral();
    made.is_flag = true;
    return body().SetIf(*condition, *made.general);
  }
  const Gpr value = registers_.GetGeneral(s, 0);
  if (s.dtype != DType::kBool || HeldOf(s, 0).is_flag) {
    body().Store(BytesOf(s.dtype), registers_.At(to), value);
    if (s.dtype != DType::kBool || !registers_.IsReadAfter(k)) return;
    // The next step has it sooner than through memory.
    made.is_bool = made.is_flag = true;
    made.general = registers_.ShareGeneral(s, 0);
    return;
  }
  body().Test32(value, value);
  body().SetIf(Condition::kNotEqual, registers_.At(to));
}

// --- Comparisons -------------------------------------------------------------

// Whether step k keeps the flags of a comparison, which is in slot `compared`.
bool GeneralEmitter::KeepsFlags(size_t k, uint16_t compared) const {
  const TapeStep& s = steps_[k];
  if (!IsCode(s) || IsScalarDivision(s)) return false;
  if (s.window != nullptr && !s.window->indices.empty()) return false;
  if (!registers_.IsGeneral(k)) return true;
  const bool reads = registers_.Operand(s, 0) == compared;
  if (s.kind == TapeStep::kStore) return s.dtype != DType::kBool || reads;
  if (s.kind != TapeStep::kCompute) return true;
  const Opcode op = s.instruction.op;
  return op == Opcode::kConvert || op == Opcode::kAdd ||
         (op == Opcode::kSelect && reads);
}

// The first step after k that changes these flags; their number if none does.
size_t GeneralEmitter::FlagsEnd(size_t k, uint16_t compared) const {
  for (++k; k < steps_.size() && KeepsFlags(k, compared);) ++k;
  return k;
}

// Whether all that reads the comparison of step k can take it from the flags.
bool GeneralEmitter::StaysInFlags(size_t k) const {
  const TapeStep& compare = steps_[k];
  const uint16_t compared = registers_.Result(compare);
  const size_t end = FlagsEnd(k, compared);
  const auto& readers = registers_.Readers(compare);
  return !registers_.IsInMemory(compare) &&
         std::all_of(readers.begin(), readers.end(), [&](size_t reader) {
           const TapeStep& s = steps_[reader];
           if (reader <= k || reader >= end || !registers_.IsGeneral(reader)) {
             return false;
           }
           return s.kind == TapeStep::kStore ||
                  (s.instruction.op == Opcode::kSelect &&
                   registers_.Operand(s, 1) != compared &&
                   registers_.Operand(s, 2) != compared);
         });
}

void GeneralEmitter::Compare(size_t k, Held& made) {
  const TapeStep& s = steps_[k];
  const Gpr a = registers_.GetGeneral(s, 0);
  Apply(Alu::kCompare, a, s, 1);
  if (StaysInFlags(k)) {
    made.condition = ConditionOf(s);
    return;
  }
  made.general = registers_.NewGeneral();
  made.is_flag = true;
  body().SetIf(ConditionOf(s), *made.general);
}

void GeneralEmitter::Select(Gpr d, const TapeStep& s) {
  const Gpr yes = registers_.GetGeneral(s, 1), no = registers_.GetGeneral(s, 2);
  const Held& held = HeldOf(s, 0);
  Condition condition = Condition::kNotEqual;
  if (held.condition) {
    condition = *held.condition;
  } else if (held.mask.reg >= 0) {
    registers_.emit().TestFirst(held.mask);
  } else {
    const Gpr flag = registers_.GetGeneral(s, 0);
    body().Test32(flag, flag);
  }
  body().Move32(d, no);
  body().Move32If(condition, d, yes);
}

// --- Arithmetic --------------------------------------------------------------

void GeneralEmitter::Compute(size_t k, Held& made) {
  const TapeStep& s = steps_[k];
  const Opcode op = s.instruction.op;
  if (IsComparison(op)) return Compare(k, made);
  if (op == Opcode::kConvert) {
    made.general = registers_.ShareGeneral(s, 0);
    made.is_flag = HeldOf(s, 0).is_flag;
    return;
  }
  const bool combines =
      op == Opcode::kAnd || op == Opcode::kOr || op == Opcode::kXor;
  made.general = registers_.NewGeneral();
  ComputeIn(*made.general, s);
  made.is_flag = combines && HeldOf(s, 0).is_flag && HeldOf(s, 1).is_flag;
}

// d <- operand j
void GeneralEmitter::Move(Gpr d, const TapeStep& s, size_t j) {
  if (const auto number = registers_.ConstantWord(s, j)) {
    return body().Move32(d, static_cast<int32_t>(*number));
  }
  body().Move32(d, registers_.GetGeneral(s, j));
}

// d <- d op operand j
void GeneralEmitter::Apply(Alu op, Gpr d, const TapeStep& s, size_t j) {
  if (const auto number = registers_.ConstantWord(s, j)) {
    return body().Compute32(op, d, static_cast<int32_t>(*number));
  }
  body().Compute32(op, d, registers_.GetGeneral(s, j));
}

// Keeps the flags.
void GeneralEmitter::Add(Gpr d, const TapeStep& s) {
  for (const size_t j : {0, 1}) {
    if (const auto number = registers_.ConstantWord(s, j)) {
      const Gpr other = registers_.GetGeneral(s, 1 - j);
      return body().LoadAddress32(d, {.base = other,
                                      .indexed = false,
                                      .offset = static_cast<int32_t>(*number)});
    }
  }
  const Gpr a = registers_.GetGeneral(s, 0), b = registers_.GetGeneral(s, 1);
  body().LoadAddress32(d, {.base = a, .index = b});
}

void GeneralEmitter::Multiply(Gpr d, const TapeStep& s) {
  const bool swaps = registers_.ConstantWord(s, 0).has_value();
  Move(d, s, swaps ? 1 : 0);
  MultiplyBy(d, s, swaps ? 0 : 1);
}

// d <- d * operand j
void GeneralEmitter::MultiplyBy(Gpr d, const TapeStep& s, size_t j) {
  const auto number = registers_.ConstantWord(s, j);
  if (!number) return body().Multiply32(d, registers_.GetGeneral(s, j));
  if (std::has_single_bit(*number)) {
    return body().Shift32(kLeft, d, std::countr_zero(*number));
  }
  body().Multiply32(d, static_cast<int32_t>(*number));
}

// d <- the larger or smaller of d and operand j
void GeneralEmitter::Extreme(bool max, Gpr d, const TapeStep& s, size_t j) {
  const Gpr other = registers_.GetGeneral(s, j);
  body().Compute32(Alu::kCompare, d, other);
  using enum Condition;
  const Condition replaces =
      IsSigned(s) ? (max ? kLess : kGreater) : (max ? kBelow : kAbove);
  body().Move32If(replaces, d, other);
}

void GeneralEmitter::Divide(Gpr d, const TapeStep& s) {
  Move(Gpr::kRax, s, 0);
  Move(Gpr::kRcx, s, 1);
  body().Move32(d, DivideGeneral(s, body()));
}

// As DivideBy of arithmetic_integer.h.
void GeneralEmitter::DivideBy(Gpr d, const TapeStep& s) {
  const auto reciprocal = static_cast<int32_t>(*registers_.ConstantWord(s, 1));
  const auto shift = static_cast<int>(s.instruction.imm);
  const Gpr a = registers_.GetGeneral(s, 0);
  body().Move32(Gpr::kRcx, a);
  if (IsSigned(s)) {
    body().ExtendSigned(Gpr::kRax, a);
    body().Multiply(Gpr::kRax, Gpr::kRax, reciprocal);
    body().ShiftRight(Gpr::kRax, 32);
    body().Compute32(Alu::kAdd, Gpr::kRax, a);
    if (shift > 0) body().Shift32(kArithmeticRight, Gpr::kRax, shift);
    body().Shift32(kLogicalRight, Gpr::kRcx, 31);
    return body().LoadAddress32(d, {.base = Gpr::kRax, .index = Gpr::kRcx});
  }
  body().Move32(Gpr::kRax, reciprocal);
  body().Multiply(Gpr::kRax, Gpr::kRcx);
  body().ShiftRight(Gpr::kRax, 32);
  body().Compute32(Alu::kSub, Gpr::kRcx, Gpr::kRax);
  body().Shift32(kLogicalRight, Gpr::kRcx, 1);
  body().LoadAddress32(d, {.base = Gpr::kRax, .index = Gpr::kRcx});
  if (shift > 0) body().Shift32(kLogicalRight, d, shift);
}

// Two operations of which each wraps around.
bool GeneralEmitter::ComputeFused(Gpr d, const TapeStep& s) {
  switch (OpNumber(s.instruction.op)) {
    case OpNumber(program::kMulAdd):
      Multiply(d, s);
      Apply(Alu::kAdd, d, s, 2);
      return true;
    case OpNumber(program::kMulSub):
      Multiply(d, s);
      Apply(Alu::kSub, d, s, 2);
      return true;
    case OpNumber(program::kNegMulAdd):
      Multiply(Gpr::kRax, s);
      Move(d, s, 2);
      body().Compute32(Alu::kSub, d, Gpr::kRax);
      return true;
    case OpNumber(program::kMulMul):
      Multiply(d, s);
      MultiplyBy(d, s, 2);
      return true;
    case OpNumber(program::kAddAdd):
      Add(d, s);
      Apply(Alu::kAdd, d, s, 2);
      return true;
    case OpNumber(program::kAddMul):
      Add(d, s);
      MultiplyBy(d, s, 2);
      return true;
    case OpNumber(program::kSubMul):
      Move(d, s, 0);
      Apply(Alu::kSub, d, s, 1);
      MultiplyBy(d, s, 2);
      return true;
    case OpNumber(program::kDivideBy):
      DivideBy(d, s);
      return true;
    case OpNumber(program::kRemainderBy):
      DivideBy(Gpr::kRax, s);
      MultiplyBy(Gpr::kRax, s, 2);
      Move(d, s, 0);
      body().Compute32(Alu::kSub, d, Gpr::kRax);
      return true;
    default:
      return false;
  }
}

void GeneralEmitter::ComputeIn(Gpr d, const TapeStep& s) {
  if (ComputeFused(d, s)) return;
  const auto apply = [&](Alu op) {
    Move(d, s, 0);
    Apply(op, d, s, 1);
  };
  const auto shift = [&](int which) {
    Move(d, s, 0);
    const auto by = static_cast<int>(*registers_.ConstantWord(s, 1));
    if (by > 0) body().Shift32(which, d, by);
  };
  const auto wrap = [&](bool is_signed, int bytes) {
    body().Extend32(is_signed, bytes, d, registers_.GetGeneral(s, 0));
  };
  const Opcode op = s.instruction.op;
  switch (op) {
    case Opcode::kAdd:
      return Add(d, s);
    case Opcode::kSub:
      return apply(Alu::kSub);
    case Opcode::kAnd:
      return apply(Alu::kAnd);
    case Opcode::kOr:
      return apply(Alu::kOr);
    case Opcode::kXor:
      return apply(Alu::kXor);
    case Opcode::kMul:
      return Multiply(d, s);
    case Opcode::kDiv:
    case Opcode::kRem:
      return Divide(d, s);
    case Opcode::kMax:
    case Opcode::kMin:
      Move(d, s, 0);
      return Extreme(op == Opcode::kMax, d, s, 1);
    case Opcode::kClamp:
      Move(d, s, 1);
      Extreme(/*max=*/true, d, s, 0);
      return Extreme(/*max=*/false, d, s, 2);
    case Opcode::kSelect:
      return Select(d, s);
    case Opcode::kShl:
      return shift(kLeft);
    case Opcode::kShrLogical:
      return shift(kLogicalRight);
    case Opcode::kShrArithmetic:
      return shift(kArithmeticRight);
    case Opcode::kNegate:
      Move(d, s, 0);
      return body().Negate32(d);
    case Opcode::kNot:
      Move(d, s, 0);
      return body().Not32(d);
    case Opcode::kWrapI8:
      return wrap(true, 1);
    case Opcode::kWrapI16:
      return wrap(true, 2);
    case Opcode::kWrapU8:
      return wrap(false, 1);
    case Opcode::kWrapU16:
      return wrap(false, 2);
    default:
      registers_.emit().Fail();
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
