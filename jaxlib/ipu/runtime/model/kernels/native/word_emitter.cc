#include "jaxlib/ipu/runtime/model/kernels/native/word_emitter.h"

#include <algorithm>
#include <bit>

#include "jaxlib/ipu/runtime/model/kernels/native/word_division.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

// An operation on lanes of 8 and of 16 bits.
constexpr WordEmitter::LaneOp kAddLane{x86::kAddByte, x86::kAddWord};
constexpr WordEmitter::LaneOp kSubLane{x86::kSubByte, x86::kSubWord};
constexpr WordEmitter::LaneOp kMaxSignedLane{x86::kMaxSignedByte,
                                             x86::kMaxSignedWord};
constexpr WordEmitter::LaneOp kMinSignedLane{x86::kMinSignedByte,
                                             x86::kMinSignedWord};
constexpr WordEmitter::LaneOp kMaxUnsignedLane{x86::kMaxUnsignedByte,
                                               x86::kMaxUnsignedWord};
constexpr WordEmitter::LaneOp kMinUnsignedLane{x86::kMinUnsignedByte,
                                               x86::kMinUnsignedWord};
constexpr WordEmitter::LaneOp kAbsLane{x86::kAbsByte, x86::kAbsWord};

// The most additions that take the place of a product of bytes; a guess: that
// is six instructions.
constexpr int kMostAdditions = 5;

bool IsShift(Opcode op) {
  return op == Opcode::kShl || op == Opcode::kShrLogical ||
         op == Opcode::kShrArithmetic;
}

}  // namespace

bool WordEmitter::Reads(const NativeValue& v, int k) const {
  const Opcode op = v.instruction.op;
  if (k == 1 && (AddedFactor(v) || BoundBeyond(v))) return false;
  if (op == program::kRemainderBy) return k != 1;
  return k != 1 || !(IsShift(op) || op == program::kDivideBy);
}

Range WordEmitter::RangeOf(const NativeValue& v, int k) const {
  return As(v.instruction.type, ranges_[v.operands[k]]);
}

bool WordEmitter::SignedLanes(const NativeValue& v, int count) const {
  for (int k = 0; k < count; ++k) {
    if (!RangeOf(v, k).FitsSigned(static_cast<int>(bytes_))) return false;
  }
  return true;
}

std::optional<uint32_t> WordEmitter::AddedFactor(const NativeValue& v) const {
  const int op = OpNumber(v.instruction.op);
  if (bytes_ != 1 ||
      !(op == OpNumber(Opcode::kMul) || op == OpNumber(program::kMulAdd) ||
        op == OpNumber(program::kMulSub) ||
        op == OpNumber(program::kNegMulAdd))) {
    return std::nullopt;
  }
  const auto constant = Constant(values_[v.operands[1]]);
  const uint32_t factor = constant.value_or(0) & 0xff;
  if (factor == 0) return std::nullopt;
  const int additions =
      static_cast<int>(std::bit_width(factor)) + std::popcount(factor) - 2;
  if (additions > kMostAdditions) return std::nullopt;
  return factor;
}

void WordEmitter::Multiply(int d, int a, int b) {
  if (bytes_ == 2) return Op(x86::kMulWord, d, a, b);
  // Bytes at odd addresses are the high ones of words.
  const int high = emit_.Number(2, 0xff00);
  const int odd = emit_.NewRegister();
  const int factor = emit_.NewRegister();
  emit_.Shift(x86::kLogicalRight, 2, odd, a, 8);
  Op(x86::kAnd, factor, b, high);
  Op(x86::kMulWord, odd, odd, factor);
  Op(x86::kMulWord, d, a, b);
  Op(x86::kAndNot, d, high, d);
  Op(x86::kOr, d, d, odd);
  emit_.Free(factor);
  emit_.Free(odd);
}

// The first product of an instruction.
void WordEmitter::MultiplyFirst(const NativeValue& v, int d, int a, int b) {
  const auto factor = AddedFactor(v);
  if (!factor) return Multiply(d, a, b);
  emit_.Copy(d, a);
  for (int bit = static_cast<int>(std::bit_width(*factor)) - 1; bit-- > 0;) {
    Op(kAddLane, d, d, d);
    if (*factor >> bit & 1) Op(kAddLane, d, d, a);
  }
}

void WordEmitter::Wrap(Opcode op, const NativeValue& v, int d, int a) {
  const size_t at = &v - values_.data();
  const bool unchanged =
      bytes_ == 1 || op == Opcode::kWrapI16 || op == Opcode::kWrapU16 ||
      ranges_[at] == ranges_[v.operands[0]] || !needs_word_[at];
  if (unchanged) return emit_.Copy(d, a);
  if (op == Opcode::kWrapU8) return Op(x86::kAnd, d, a, Number(0xff));
  Shift(x86::kLeft, d, a, 8);
  Shift(x86::kArithmeticRight, d, d, 8);
}

void WordEmitter::Extreme(bool max, bool is_signed, int d, int a, int b) {
  Op(is_signed ? (max ? kMaxSignedLane : kMinSignedLane)
               : (max ? kMaxUnsignedLane : kMinUnsignedLane),
     d, a, b);
}

void WordEmitter::ShiftBy(const NativeValue& v, int d, int a) {
  if (bytes_ == 1) return ShiftBytesBy(v, d, a);
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

// There are no shifts of bytes: the bits that come from the byte beside are
// cleared.
void WordEmitter::ShiftBytesBy(const NativeValue& v, int d, int a) {
  const auto by = static_cast<int>(
      std::min<uint32_t>(*Constant(values_[v.operands[1]]), 8));
  if (v.instruction.op == Opcode::kShl) {
    emit_.Shift(x86::kLeft, 2, d, a, by);
    return Op(x86::kAnd, d, d, Number(0xff << by));
  }
  const bool is_signed = !RangeOf(v, 0).FitsUnsigned(1);
  const int bits = is_signed ? std::min(by, 7) : by;
  emit_.Shift(x86::kLogicalRight, 2, d, a, bits);
  Op(x86::kAnd, d, d, Number(0xff >> bits));
  if (!is_signed) return;
  const int sign = Number(0x80 >> bits);
  Op(x86::kXor, d, d, sign);
  Op(kSubLane, d, d, sign);
}

// Bytes at odd and at even addresses apart, each as the high one of a word.
void WordEmitter::DivideBytesBy(const NativeValue& v, int d, int a) {
  const Range range = RangeOf(v, 0);
  const uint16_t multiplier = *ByteReciprocalOf(*Divisor(values_, v), range);
  if (multiplier == 0) return emit_.Copy(d, Number(0));
  const bool is_signed = range.least < 0;
  const VectorOp multiply =
      is_signed ? x86::kMulHighSignedWord : x86::kMulHighUnsignedWord;
  const int reciprocal = emit_.Number(2, multiplier);
  const int high = emit_.Number(2, 0xff00);
  const int odd = emit_.NewRegister();
  Op(x86::kAnd, odd, a, high);
  Op(multiply, odd, odd, reciprocal);
  Op(x86::kAnd, odd, odd, high);
  Shift(x86::kLeft, d, a, 8);
  Op(multiply, d, d, reciprocal);
  Shift(x86::kLogicalRight, d, d, 8);
  Op(x86::kOr, d, d, odd);
  if (is_signed) {  // add the sign bit
    Shift(x86::kLogicalRight, odd, a, 7);
    Op(x86::kAnd, odd, odd, Number(1));
    Op(kAddLane, d, d, odd);
  }
  emit_.Free(odd);
}

void WordEmitter::DivideBy(const NativeValue& v, int d, int a) {
  if (bytes_ == 1) return DivideBytesBy(v, d, a);
  const WordReciprocal r =
      WordReciprocalOf(*Divisor(values_, v), RangeOf(v, 0));
  if (r.zero) return emit_.Copy(d, Number(0));
  Op(r.is_signed ? x86::kMulHighSignedWord : x86::kMulHighUnsignedWord, d, a,
     Number(r.multiplier));
  const int rest = emit_.NewRegister();
  if (r.is_signed) {
    if (r.corrected) Op(kAddLane, d, d, a);
    if (r.shift > 0) Shift(x86::kArithmeticRight, d, d, r.shift);
    Shift(x86::kLogicalRight, rest, a, 15);
    Op(kAddLane, d, d, rest);
  } else {
    if (r.corrected) {
      Op(kSubLane, rest, a, d);
      Shift(x86::kLogicalRight, rest, rest, 1);
      Op(kAddLane, d, d, rest);
    }
    if (r.shift > 0) Shift(x86::kLogicalRight, d, d, r.shift);
  }
  emit_.Free(rest);
}

// The next whole number in the direction of an order that includes a constant
// operand 1: there are instructions for orders that exclude it.
std::optional<int64_t> WordEmitter::BoundBeyond(const NativeValue& v) const {
  const Opcode op = v.instruction.op;
  if ((op != Opcode::kLe && op != Opcode::kGe) || !SignedLanes(v, 2) ||
      !Constant(values_[v.operands[1]])) {
    return std::nullopt;
  }
  const int64_t bound = RangeOf(v, 1).least;
  const int64_t beyond = op == Opcode::kLe ? bound + 1 : bound - 1;
  if (!Range{beyond, beyond}.FitsSigned(static_cast<int>(bytes_))) {
    return std::nullopt;
  }
  return beyond;
}

void WordEmitter::Compare(const NativeValue& v, Mask mask, int a, int b) {
  if (const auto beyond = BoundBeyond(v)) {
    const bool below = v.instruction.op == Opcode::kLe;
    return emit_.CompareNarrow(below ? Opcode::kLt : Opcode::kGt, true, mask, a,
                               Number(*beyond));
  }
  emit_.CompareNarrow(v.instruction.op, SignedLanes(v, 2), mask, a, b);
}

// Two operations of which each wraps around.
bool WordEmitter::ComputeFused(const NativeValue& v, int d, int a, int b,
                               int c) {
  const auto add = [&](LaneOp second, int x, int y) {
    Op(second, d, x, y);
    return true;
  };
  const auto multiply = [&] {
    Multiply(d, d, c);
    return true;
  };
  switch (OpNumber(v.instruction.op)) {
    case OpNumber(program::kMulAdd):
      MultiplyFirst(v, d, a, b);
      return add(kAddLane, d, c);
    case OpNumber(program::kMulSub):
      MultiplyFirst(v, d, a, b);
      return add(kSubLane, d, c);
    case OpNumber(program::kNegMulAdd):
      MultiplyFirst(v, d, a, b);
      return add(kSubLane, c, d);
    case OpNumber(program::kMulMul):
      Multiply(d, a, b);
      return multiply();
    case OpNumber(program::kAddAdd):
      Op(kAddLane, d, a, b);
      return add(kAddLane, d, c);
    case OpNumber(program::kAddMul):
      Op(kAddLane, d, a, b);
      return multiply();
    case OpNumber(program::kSubMul):
      Op(kSubLane, d, a, b);
      return multiply();
    case OpNumber(program::kDivideBy):
      DivideBy(v, d, a);
      return true;
    case OpNumber(program::kRemainderBy):
      DivideBy(v, d, a);
      Multiply(d, d, c);
      return add(kSubLane, a, d);
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
      return Op(kSubLane, d, Number(0), a);
    case Opcode::kNot:
      return Op(x86::kXor, d, a, Number(0xffff));
    case Opcode::kAbs:
      if (RangeOf(v, 0).least >= 0) return emit_.Copy(d, a);
      return Op(kAbsLane, d, 0, a);
    case Opcode::kSign:
      if (RangeOf(v, 0).FitsUnsigned(static_cast<int>(bytes_))) {
        return Extreme(false, false, d, a, Number(1));
      }
      Extreme(false, true, d, a, Number(1));
      return Extreme(true, true, d, d, Number(-1));
    case Opcode::kAdd:
      return Op(kAddLane, d, a, b);
    case Opcode::kSub:
      return Op(kSubLane, d, a, b);
    case Opcode::kMul:
      return MultiplyFirst(v, d, a, b);
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
