#include "jaxlib/ipu/runtime/model/kernels/native/word_emitter.h"

#include <algorithm>

#include "jaxlib/ipu/runtime/model/kernels/native/word_division.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

bool IsShift(Opcode op) {
  return op == Opcode::kShl || op == Opcode::kShrLogical ||
         op == Opcode::kShrArithmetic;
}

}  // namespace

bool WordEmitter::Reads(const NativeValue& v, int k) {
  const Opcode op = v.instruction.op;
  if (op == program::kRemainderBy) return k != 1;
  return k != 1 || !(IsShift(op) || op == program::kDivideBy);
}

Range WordEmitter::RangeOf(const NativeValue& v, int k) const {
  return As(v.instruction.type, ranges_[v.operands[k]]);
}

bool WordEmitter::SignedLanes(const NativeValue& v, int count) const {
  for (int k = 0; k < count; ++k) {
    if (!RangeOf(v, k).FitsSigned()) return false;
  }
  return true;
}

void WordEmitter::Wrap(Opcode op, const NativeValue& v, int d, int a) {
  const size_t at = &v - values_.data();
  const bool unchanged = op == Opcode::kWrapI16 || op == Opcode::kWrapU16 ||
                         ranges_[at] == ranges_[v.operands[0]] ||
                         !needs_word_[at];
  if (unchanged) return emit_.Copy(d, a);
  if (op == Opcode::kWrapU8) return Op(x86::kAnd, d, a, Number(0xff));
  Shift(x86::kLeft, d, a, 8);
  Shift(x86::kArithmeticRight, d, d, 8);
}

void WordEmitter::Extreme(bool max, bool is_signed, int d, int a, int b) {
  Op(is_signed ? (max ? x86::kMaxSignedWord : x86::kMinSignedWord)
               : (max ? x86::kMaxUnsignedWord : x86::kMinUnsignedWord),
     d, a, b);
}

void WordEmitter::ShiftBy(const NativeValue& v, int d, int a) {
  // Logical shifts by 16 and more give 0, as those of wider registers do to
  // these bits.
  const auto by = static_cast<int>(
      std::min<uint32_t>(*Constant(values_[v.operands[1]]), 16));
  if (v.instruction.op == Opcode::kShl) return Shift(x86::kLeft, d, a, by);
  if (RangeOf(v, 0).FitsUnsigned()) {
    return Shift(x86::kLogicalRight, d, a, by);
  }
  Shift(x86::kArithmeticRight, d, a, std::min(by, 15));
}

void WordEmitter::DivideBy(const NativeValue& v, int d, int a) {
  const WordReciprocal r =
      WordReciprocalOf(*Divisor(values_, v), RangeOf(v, 0));
  if (r.zero) return emit_.Copy(d, Number(0));
  Op(r.is_signed ? x86::kMulHighSignedWord : x86::kMulHighUnsignedWord, d, a,
     Number(r.multiplier));
  const int rest = emit_.NewRegister();
  if (r.is_signed) {
    if (r.corrected) Op(x86::kAddWord, d, d, a);
    if (r.shift > 0) Shift(x86::kArithmeticRight, d, d, r.shift);
    Shift(x86::kLogicalRight, rest, a, 15);
    Op(x86::kAddWord, d, d, rest);
  } else {
    if (r.corrected) {
      Op(x86::kSubWord, rest, a, d);
      Shift(x86::kLogicalRight, rest, rest, 1);
      Op(x86::kAddWord, d, d, rest);
    }
    if (r.shift > 0) Shift(x86::kLogicalRight, d, d, r.shift);
  }
  emit_.Free(rest);
}

void WordEmitter::Compare(const NativeValue& v, Mask mask, int a, int b) {
  const int d = mask.reg;
  const bool is_signed = SignedLanes(v, 2);
  const auto invert = [&] { Op(x86::kXor, d, d, Number(0xffff)); };
  switch (v.instruction.op) {
    case Opcode::kEq:
      return Op(x86::kEqualWord, d, a, b);
    case Opcode::kNe:
      Op(x86::kEqualWord, d, a, b);
      return invert();
    case Opcode::kLt:
    case Opcode::kGe:
      std::swap(a, b);
      break;
    default:
      break;
  }
  const bool or_equal =
      v.instruction.op == Opcode::kLe || v.instruction.op == Opcode::kGe;
  if (is_signed) {
    Op(x86::kGreaterWord, d, a, b);
    if (or_equal) invert();
    return;
  }
  // Of unsigned lanes there are only extremes: a <= b if the smaller is a.
  Op(x86::kMinUnsignedWord, d, a, b);
  Op(x86::kEqualWord, d, d, a);
  if (!or_equal) invert();
}

// Two operations of which each wraps around.
bool WordEmitter::ComputeFused(const NativeValue& v, int d, int a, int b,
                               int c) {
  const auto two = [&](VectorOp first, VectorOp second) {
    Op(first, d, a, b);
    Op(second, d, d, c);
    return true;
  };
  switch (OpNumber(v.instruction.op)) {
    case OpNumber(program::kMulAdd):
      return two(x86::kMulWord, x86::kAddWord);
    case OpNumber(program::kMulSub):
      return two(x86::kMulWord, x86::kSubWord);
    case OpNumber(program::kNegMulAdd):
      Op(x86::kMulWord, d, a, b);
      Op(x86::kSubWord, d, c, d);
      return true;
    case OpNumber(program::kMulMul):
      return two(x86::kMulWord, x86::kMulWord);
    case OpNumber(program::kAddAdd):
      return two(x86::kAddWord, x86::kAddWord);
    case OpNumber(program::kAddMul):
      return two(x86::kAddWord, x86::kMulWord);
    case OpNumber(program::kSubMul):
      return two(x86::kSubWord, x86::kMulWord);
    case OpNumber(program::kDivideBy):
      DivideBy(v, d, a);
      return true;
    case OpNumber(program::kRemainderBy):
      DivideBy(v, d, a);
      Op(x86::kMulWord, d, d, c);
      Op(x86::kSubWord, d, a, d);
      return true;
    default:
      return false;
  }
}

void WordEmitter::Compute(const NativeValue& v, int d, int a, int b, int c) {
  if (ComputeFused(v, d, a, b, c)) return;
  const Opcode op = v.instruction.op;
  switch (op) {
    case Opcode::kConvert:
      return emit_.Copy(d, a);
    case Opcode::kWrapI8:
    case Opcode::kWrapI16:
    case Opcode::kWrapU8:
    case Opcode::kWrapU16:
      return Wrap(op, v, d, a);
    case Opcode::kNegate:
      return Op(x86::kSubWord, d, Number(0), a);
    case Opcode::kNot:
      return Op(x86::kXor, d, a, Number(0xffff));
    case Opcode::kAbs:
      if (RangeOf(v, 0).least >= 0) return emit_.Copy(d, a);
      return Op(x86::kAbsWord, d, 0, a);
    case Opcode::kSign:
      if (RangeOf(v, 0).FitsUnsigned()) {
        return Extreme(false, false, d, a, Number(1));
      }
      Extreme(false, true, d, a, Number(1));
      return Extreme(true, true, d, d, Number(-1));
    case Opcode::kAdd:
      return Op(x86::kAddWord, d, a, b);
    case Opcode::kSub:
      return Op(x86::kSubWord, d, a, b);
    case Opcode::kMul:
      return Op(x86::kMulWord, d, a, b);
    case Opcode::kAnd:
      return Op(x86::kAnd, d, a, b);
    case Opcode::kOr:
      return Op(x86::kOr, d, a, b);
    case Opcode::kXor:
      return Op(x86::kXor, d, a, b);
    case Opcode::kShl:
    case Opcode::kShrLogical:
    case Opcode::kShrArithmetic:
      return ShiftBy(v, d, a);
    case Opcode::kMax:
    case Opcode::kMin:
      return Extreme(op == Opcode::kMax, SignedLanes(v, 2), d, a, b);
    case Opcode::kClamp: {
      const bool is_signed = SignedLanes(v, 3);
      const int at_least = emit_.NewRegister();
      Extreme(true, is_signed, at_least, b, a);
      Extreme(false, is_signed, d, at_least, c);
      return emit_.Free(at_least);
    }
    default:
      emit_.Fail();
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
