#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

namespace ipu::model::IPU_SIMD_NS {

#if !IPU_AVX512

Mask VectorEmitter::NewMask(uint32_t width) { return {NewRegister(), width}; }
Mask VectorEmitter::KeepMask(uint32_t width) { return NewMask(width); }
Mask VectorEmitter::LanesOf(uint32_t width, uint64_t) {
  Fail();
  return {0, width};
}
void VectorEmitter::Free(Mask mask) { Free(mask.reg); }

void VectorEmitter::Broadcast(uint32_t width, int d) {
  const bool wide = width == 8;
  hoisted_.Vector(x86::Wide(x86::kLoadLow, wide), {16}, d, 0,
                  static_cast<int>(Gpr::kRcx));
  hoisted_.Vector(width == 1   ? x86::kBroadcastByte
                  : width == 2 ? x86::kBroadcastWord
                  : wide       ? x86::kBroadcastLowWide
                               : x86::kBroadcastLow,
                  Whole(width), d, 0, d);
}

void VectorEmitter::Test(Mask mask, int flags) {
  const uint32_t w = mask.width <= 2 ? mask.width : 4;
  const int one = Number(w, 1);
  Op(w == 1   ? x86::kMinUnsignedByte
     : w == 2 ? x86::kMinUnsignedWord
              : x86::kMinUnsigned,
     w, mask.reg, flags, one);
  Op(w == 1   ? x86::kEqualByte
     : w == 2 ? x86::kEqualWord
              : x86::kEqual,
     w, mask.reg, mask.reg, one);
}
void VectorEmitter::Combine(Opcode op, Mask mask, Mask a, Mask b) {
  const VectorOp code = op == Opcode::kAnd  ? x86::kAnd
                        : op == Opcode::kOr ? x86::kOr
                                            : x86::kXor;
  Op(code, mask.width, mask.reg, a.reg, b.reg);
}
void VectorEmitter::TestFirst(Mask mask) {
  body_.Vector(x86::kStoreLow, {16}, mask.reg, 0, static_cast<int>(Gpr::kRcx));
  body_.Test32(Gpr::kRcx, Gpr::kRcx);
}
void VectorEmitter::CompareLanes(Mask mask, bool all) {
  const Lanes lanes = Of(mask.width);
  body_.Vector(x86::Float(x86::kSignsF, mask.width == 8), lanes,
               static_cast<int>(Gpr::kRcx), 0, mask.reg);
  const int count = std::max(lanes.bytes, 16) / static_cast<int>(mask.width);
  body_.Compute32(Alu::kCompare, Gpr::kRcx, all ? (1 << count) - 1 : 0);
}
void VectorEmitter::Flags(int d, Mask mask) {
  if (mask.width == 1) return Op(x86::kAnd, 1, d, mask.reg, Number(1, 1));
  if (mask.width == 2) return Shift(x86::kLogicalRight, 2, d, mask.reg, 15);
  if (mask.width == 8) LowHalves(d, mask.reg);
  Shift(x86::kLogicalRight, 4, d, mask.width == 8 ? d : mask.reg, 31);
}
void VectorEmitter::FloatFlags(int d, Mask mask) {
  Op(x86::kAnd, 4, d, mask.reg, One(4, /*is_float=*/true));
}
void VectorEmitter::Blend(uint32_t width, Mask mask, int d, int no, int yes) {
  int lanes = mask.reg;
  if (width != mask.width) {
    lanes = NewRegister();
    if (width == 8) {
      Op(x86::kExtendI32, 8, lanes, 0, mask.reg);
    } else {
      LowHalves(lanes, mask.reg);
    }
  }
  const VectorOp select = width <= 2   ? x86::kSelectByte
                          : width == 8 ? x86::kSelectWide
                                       : x86::kSelect;
  body_.Vector(select, Of(width), d, no, yes, lanes << 4);
  if (lanes != mask.reg) Free(lanes);
}
void VectorEmitter::SpreadMask(int d, Mask mask) { Spread(4, d, mask.reg); }
void VectorEmitter::Choose(int bits, int d, int no, int yes) {
  Blend(4, {bits, 4}, d, no, yes);
}

void VectorEmitter::CompareF(Mask mask, uint32_t width, int a, int b, int how) {
  body_.Vector(x86::Float(x86::kCompareF, width == 8), Of(width), mask.reg, a,
               b, how);
}
void VectorEmitter::CompareI(Opcode op, RegisterType type, Mask mask, int a,
                             int b) {
  const uint32_t w = program::RegisterBytes(type);
  const int d = mask.reg;
  const bool differs = op == Opcode::kNe;
  if (differs || op == Opcode::kEq) {
    Op(w == 8 ? x86::kEqualWide : x86::kEqual, w, d, a, b);
    if (differs) Not(w, d, d);
    return;
  }
  // There is only a > b, of signed integers.
  if (op == Opcode::kLt || op == Opcode::kGe) std::swap(a, b);
  const bool inverted = op == Opcode::kLe || op == Opcode::kGe;
  const VectorOp greater = w == 8 ? x86::kGreaterWide : x86::kGreater;
  if (IsSigned(type)) {
    Op(greater, w, d, a, b);
  } else if (inverted && w == 4) {  // a <= b
    Op(x86::kMinUnsigned, 4, d, a, b);
    return Op(x86::kEqual, 4, d, d, a);
  } else {
    const int other = NewRegister();
    Op(x86::kXor, w, other, b, SignBit(w));
    Op(x86::kXor, w, d, a, SignBit(w));
    Op(greater, w, d, d, other);
    Free(other);
  }
  if (inverted) Not(w, d, d);
}

void VectorEmitter::CompareNarrow(Opcode op, bool is_signed, Mask mask, int a,
                                  int b) {
  const uint32_t w = mask.width;
  const int d = mask.reg;
  const VectorOp equal = w == 1 ? x86::kEqualByte : x86::kEqualWord;
  const auto invert = [&] { Op(x86::kXor, w, d, d, Number(2, 0xffff)); };
  if (op == Opcode::kEq || op == Opcode::kNe) {
    Op(equal, w, d, a, b);
    if (op == Opcode::kNe) invert();
    return;
  }
  if (op == Opcode::kLt || op == Opcode::kGe) std::swap(a, b);
  const bool or_equal = op == Opcode::kLe || op == Opcode::kGe;
  if (is_signed) {
    Op(w == 1 ? x86::kGreaterByte : x86::kGreaterWord, w, d, a, b);
    if (or_equal) invert();
    return;
  }
  // Of unsigned lanes there are only extremes: a <= b if the smaller is a.
  Op(w == 1 ? x86::kMinUnsignedByte : x86::kMinUnsignedWord, w, d, a, b);
  Op(equal, w, d, d, a);
  if (!or_equal) invert();
}

void VectorEmitter::Insert(Mask mask, int d, int from, uint32_t which) {
  const int change = NewRegister();
  Op(x86::kXor, 4, change, d, from);
  Op(x86::kAnd, 4, change, change, Number(4, which));
  Op(x86::kAnd, 4, change, change, mask.reg);
  Op(x86::kXor, 4, d, d, change);
  Free(change);
}
void VectorEmitter::KeepWithout(Mask mask, int x, uint32_t bits) {
  const int none = NewRegister();
  Op(x86::kAnd, 4, none, x, Number(4, bits));
  Op(x86::kEqual, 4, none, none, Zero(4));
  Op(x86::kAnd, 4, mask.reg, mask.reg, none);
  Free(none);
}
void VectorEmitter::SetIfAny(int d, int a, uint32_t bits, uint32_t others) {
  Op(x86::kAnd, 4, d, a, Number(4, others));
  Op(x86::kEqual, 4, d, d, Zero(4));
  Op(x86::kAndNot, 4, d, d, Number(4, bits));
  Op(x86::kOr, 4, d, d, a);
}

void VectorEmitter::Cut(int bytes, int d, int a) {
  // Shuffles bytes within each half of a vector, then joins the halves.
  const int order =
      bytes == 1 ? Number(4, 0x0c080400) : Number(8, 0x0d0c'0908'0504'0100);
  Op(x86::kShuffleBytes, 4, d, a, order);
  if (Of(4).bytes < 32) return;
  if (bytes == 2) {
    return body_.Vector(x86::kPermuteWide, Of(4), d, 0, d, 0x08);
  }
  const int high = NewRegister();
  body_.Vector(x86::kHighHalf, Of(4), d, 0, high, 1);
  body_.Vector(x86::kInterleave, {16}, d, d, high);
  Free(high);
}

void VectorEmitter::CutWords(int d, int a) {
  Op(x86::kShuffleBytes, 2, d, a, Number(8, 0x0e0c'0a08'0604'0200));
  body_.Vector(x86::kPermuteWide, Of(2), d, 0, d, 0x08);
}

void VectorEmitter::Shift(int which, uint32_t width, int d, int a, int by) {
  const VectorOp op = width == 2   ? x86::kShift16
                      : width == 8 ? x86::kShift64
                                   : x86::kShift32;
  body_.Vector(op, Of(width), which, d, a, by);
}
int VectorEmitter::Sixteen(uint64_t low, uint64_t high) {
  const auto at = sixteens_.find({low, high});
  if (at != sixteens_.end()) return at->second;
  const int reg = NewHoisted();
  if (reg < 0) {
    Fail();
    return 0;
  }
  sixteens_[{low, high}] = reg;
  const auto number = static_cast<int>(Gpr::kRcx);
  hoisted_.Move(Gpr::kRcx, low);
  hoisted_.Vector(x86::Wide(x86::kLoadLow, true), {16}, reg, 0, number);
  hoisted_.Move(Gpr::kRcx, high);
  hoisted_.Vector(x86::kInsertWide, {16}, reg, reg, number, 1);
  hoisted_.Vector(x86::kInsertHalf, {32}, reg, reg, reg, 1);
  return reg;
}

// Looks up how many bits each half of a byte has, then adds up the bytes.
void VectorEmitter::CountOnes(uint32_t w, int d, int a) {
  const int low_bits = Number(w, w == 8 ? 0x0f0f'0f0f'0f0f'0f0f : 0x0f0f'0f0f);
  const int table = Sixteen(0x0302'0201'0201'0100, 0x0403'0302'0302'0201);
  const int high = NewRegister();
  Shift(x86::kLogicalRight, w, high, a, 4);
  Op(x86::kAnd, w, high, high, low_bits);
  Op(x86::kAnd, w, d, a, low_bits);
  Op(x86::kShuffleBytes, w, high, table, high);
  Op(x86::kShuffleBytes, w, d, table, d);
  Op(x86::kAddByte, w, d, d, high);
  Free(high);
  if (w == 8) return Op(x86::kSumBytes, w, d, d, Zero(w));
  Op(x86::kSumBytePairs, w, d, d, Number(4, 0x01010101));
  Op(x86::kSumPairs, w, d, d, Number(4, 0x00010001));
}

void VectorEmitter::CountLeadingZeros(uint32_t w, int d, int a) {
  if (w == 4) return CountLeadingZeros32(d, a);
  // The ones that are left of the complement once all bits below a one are
  // ones.
  const int ones = NewRegister(), other = NewRegister();
  for (int by = 1; by < static_cast<int>(8 * w); by *= 2) {
    const int from = by == 1 ? a : ones;
    Shift(x86::kLogicalRight, w, other, from, by);
    Op(x86::kOr, w, ones, from, other);
  }
  Free(other);
  Not(w, ones, ones);
  CountOnes(w, d, ones);
  Free(ones);
}

// From the exponent of a float, which is that of the highest one, as the bit
// below it is cleared first: no rounding carries beyond it. Of a number that
// has the highest bit, the float is negative; its sign counts in what is
// subtracted. 0 has the exponent 0.
void VectorEmitter::CountLeadingZeros32(int d, int a) {
  constexpr int kExponentOfOne = 127;
  const int exponent = NewRegister();
  Shift(x86::kLogicalRight, 4, exponent, a, 1);
  Op(x86::kAndNot, 4, exponent, exponent, a);
  Op(x86::kI32ToF32, 4, exponent, 0, exponent);
  Shift(x86::kLogicalRight, 4, exponent, exponent, 23);
  Op(x86::kSubAtLeastZero, 4, d, Number(4, kExponentOfOne + 31), exponent);
  Free(exponent);
  Op(x86::kMinSigned, 4, d, d, Number(4, 32));
}
void VectorEmitter::Rotate(uint32_t w, int d, int a, int by) {
  const int rest = NewRegister();
  Shift(x86::kLeft, w, rest, a, by);
  Shift(x86::kLogicalRight, w, d, a, static_cast<int>(8 * w) - by);
  OpI(x86::kOr, w, d, d, rest);
  Free(rest);
}
void VectorEmitter::ShiftArithmetic(uint32_t w, int d, int a, int by) {
  if (w == 4) return Op(x86::kShiftArithmetic, 4, d, a, by);
  const int sign = NewRegister();
  Op(x86::kGreaterWide, 8, sign, Zero(8), a);
  Op(x86::kXor, 8, d, a, sign);
  OpI(x86::kShiftLogical, 8, d, d, by);
  Op(x86::kXor, 8, d, d, sign);
  Free(sign);
}

// From products of 32-bit halves.
void VectorEmitter::MulWide(int d, int a, int b) {
  const int high = NewRegister();
  Shift(x86::kLogicalRight, 8, d, a, 32);
  Op(x86::kMulUnsigned, 8, d, d, b);
  Shift(x86::kLogicalRight, 8, high, b, 32);
  Op(x86::kMulUnsigned, 8, high, high, a);
  Op(x86::kAddWide, 8, high, high, d);
  Shift(x86::kLeft, 8, high, high, 32);
  Op(x86::kMulUnsigned, 8, d, a, b);
  Op(x86::kAddWide, 8, d, d, high);
  Free(high);
}
void VectorEmitter::ExtremeI(bool max, RegisterType type, int d, int a, int b) {
  if (program::RegisterBytes(type) == 4) {
    return Op(IsSigned(type) ? (max ? x86::kMaxSigned : x86::kMinSigned)
                             : (max ? x86::kMaxUnsigned : x86::kMinUnsigned),
              4, d, a, b);
  }
  const Mask greater = NewMask(8);
  CompareI(Opcode::kGt, type, greater, a, b);
  Blend(8, greater, d, max ? b : a, max ? a : b);
  Free(greater);
}
void VectorEmitter::AbsI(uint32_t w, int d, int a) {
  if (w == 4) return Op(x86::kAbs, 4, d, 0, a);
  const int sign = NewRegister();
  Op(x86::kGreaterWide, 8, sign, Zero(8), a);
  Op(x86::kXor, 8, d, a, sign);
  Op(x86::kSubWide, 8, d, d, sign);
  Free(sign);
}
void VectorEmitter::Not(uint32_t w, int d, int a) {
  Op(x86::kXor, w, d, a, AllBits(w));
}

void VectorEmitter::LowHalves(int d, int a) {
  // In a vector of 16 bytes, two lanes; their high halves are not used.
  if (Of(8).bytes < 32) return Copy(d, a);
  const int high = NewRegister();
  body_.Vector(x86::kHighHalf, Of(8), a, 0, high, 1);
  body_.Vector(x86::kShuffleF, {16}, d, a, high, 0x88);
  Free(high);
}
void VectorEmitter::FromU32(RegisterType to, int d, int a) {
  const int low = NewRegister();
  if (to == RegisterType::kF64) {  // x ^ 2^31 as a signed integer is x - 2^31
    Op(x86::kXor, 4, low, a, SignBit(4));
    Op(x86::kI32ToF64, 8, d, 0, low);
    OpF(x86::kAddF, 8, d, d, Number(8, 0x41e0'0000'0000'0000));
  } else {  // both halves are exact, and only their sum is rounded
    Op(x86::kAnd, 4, low, a, Number(4, 0xffff));
    Shift(x86::kLogicalRight, 4, d, a, 16);
    Op(x86::kI32ToF32, 4, low, 0, low);
    Op(x86::kI32ToF32, 4, d, 0, d);
    OpF(x86::kMulF, 4, d, d, Number(4, 0x47800000));  // 2^16
    OpF(x86::kAddF, 4, d, d, low);
  }
  Free(low);
}
// AVX2 has no such instruction: see IsNative.
void VectorEmitter::F32ToU32(int, int) { Fail(); }

#endif  // !IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
