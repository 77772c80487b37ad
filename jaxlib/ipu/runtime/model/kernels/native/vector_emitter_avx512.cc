#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

namespace ipu::model::IPU_SIMD_NS {

#if IPU_AVX512

namespace {

// Mask registers: 1 is kTailMask, then a temporary within one instruction,
// comparisons whose SELECT is still to come, and the lanes of LanesOf.
constexpr int kTemporaryMask = 2;
constexpr int kFirstKept = 3, kMasks = 7, kLanesMask = 7;

// How an instruction compares integers.
int HowI(program::Opcode op) {
  enum : int { kEqI = 0, kLtI = 1, kLeI = 2, kNeI = 4, kGeI = 5, kGtI = 6 };
  constexpr int kHow[] = {kEqI, kNeI, kLtI, kLeI, kGtI, kGeI};
  return kHow[static_cast<int>(op) - static_cast<int>(program::Opcode::kEq)];
}

// Instructions that come in all widths: on lanes of 1 or 2 bytes, and on wider
// ones.
VectorOp OfWidth(VectorOp narrow, VectorOp op, uint32_t width) {
  return x86::Wide(width <= 2 ? narrow : op, width == 2 || width == 8);
}

}  // namespace

Mask VectorEmitter::NewMask(uint32_t width) { return {kTemporaryMask, width}; }

Mask VectorEmitter::KeepMask(uint32_t width) {
  int mask = kFirstKept;
  while (mask < kMasks && masks_used_ >> mask & 1) ++mask;
  if (mask == kMasks) return {-1, width};
  masks_used_ |= 1u << mask;
  return {mask, width};
}

Mask VectorEmitter::LanesOf(uint32_t width, uint64_t bits) {
  const bool hoisted = lane_bits_ == 0 || lane_bits_ == bits;
  const int reg = hoisted ? kLanesMask : kTemporaryMask;
  if (lane_bits_ != bits) {
    Assembler& to = hoisted ? hoisted_ : body_;
    if (hoisted) lane_bits_ = bits;
    to.Move(Gpr::kRcx, bits);
    to.MoveToMask(reg, Gpr::kRcx);
  }
  return {reg, width};
}

void VectorEmitter::Free(Mask mask) { masks_used_ &= ~(1u << mask.reg); }

void VectorEmitter::Broadcast(uint32_t width, int d) {
  const VectorOp op = width == 1   ? x86::kSpreadByte
                      : width == 2 ? x86::kSpreadWord
                                   : x86::Wide(x86::kBroadcast, width == 8);
  hoisted_.Vector(op, Whole(width), d, 0, static_cast<int>(Gpr::kRcx));
}

void VectorEmitter::Test(Mask mask, int flags) {
  const uint32_t w = mask.width <= 2 ? mask.width : 4;
  body_.Vector(OfWidth(x86::kTestNarrow, x86::kTest, w), Of(w), mask.reg, flags,
               flags);
}
void VectorEmitter::Combine(Opcode op, Mask mask, Mask a, Mask b) {
  const int code = op == Opcode::kAnd ? 0x41 : op == Opcode::kOr ? 0x45 : 0x47;
  // All 64 bits, as lanes of a byte have: kandq, korq, kxorq.
  body_.Bytes({0xc4, 0xe1, 0x84 | (~a.reg & 15) << 3, code,
               0xc0 | mask.reg << 3 | b.reg});
}
void VectorEmitter::TestFirst(Mask mask) {
  body_.Bytes({0xc5, 0xfb, 0x93, 0xc8 | mask.reg,  // kmovd ecx, mask
               0xf6, 0xc1, 1});                    // test cl, 1
}
void VectorEmitter::CompareLanes(Mask mask, bool all) {
  body_.Bytes({0xc5, 0xfb, 0x93, 0xc8 | mask.reg});  // kmovd ecx, mask
  body_.Compute32(Alu::kCompare, Gpr::kRcx, all ? (1 << lanes_) - 1 : 0);
}
void VectorEmitter::Flags(int d, Mask mask) {
  const uint32_t w = mask.width <= 2 ? mask.width : 4;
  body_.Vector(OfWidth(x86::kLoadNarrow, x86::kMove, w),
               Of(w, mask.reg, /*zero=*/true), d, 0, Number(w, 1));
}
void VectorEmitter::FloatFlags(int d, Mask mask) {
  body_.Vector(x86::kMove, Of(4, mask.reg, /*zero=*/true), d, 0,
               One(4, /*is_float=*/true));
}
void VectorEmitter::Blend(uint32_t width, Mask mask, int d, int no, int yes) {
  body_.Vector(OfWidth(x86::kBlendNarrow, x86::kBlend, width),
               Of(width, mask.reg), d, no, yes);
}
void VectorEmitter::SpreadMask(int d, Mask mask) {
  body_.Vector(x86::kMove, Of(4, mask.reg, /*zero=*/true), d, 0, AllBits(4));
  Spread(4, d, d);
}
void VectorEmitter::Choose(int bits, int d, int no, int yes) {
  Copy(d, bits);
  body_.Vector(x86::kTernary, Of(4), d, yes, no, 0xca);
}

void VectorEmitter::CompareF(Mask mask, uint32_t width, int a, int b, int how) {
  body_.Vector(x86::Float(x86::kCompareF, width == 8), Of(width), mask.reg, a,
               b, how);
}
void VectorEmitter::CompareI(Opcode op, RegisterType type, Mask mask, int a,
                             int b) {
  const uint32_t w = program::RegisterBytes(type);
  const VectorOp compare =
      IsSigned(type) ? x86::kCompareSigned : x86::kCompareUnsigned;
  body_.Vector(x86::Wide(compare, w == 8), Of(w), mask.reg, a, b, HowI(op));
}
void VectorEmitter::CompareNarrow(Opcode op, bool is_signed, Mask mask, int a,
                                  int b) {
  const VectorOp compare =
      is_signed ? x86::kCompareSignedNarrow : x86::kCompareUnsignedNarrow;
  body_.Vector(x86::Wide(compare, mask.width == 2), Of(mask.width), mask.reg, a,
               b, HowI(op));
}

void VectorEmitter::Insert(Mask mask, int d, int from, uint32_t which) {
  body_.Vector(x86::kTernary, Of(4, mask.reg), d, from, Number(4, which), 0xd8);
}
void VectorEmitter::KeepWithout(Mask mask, int x, uint32_t bits) {
  body_.Vector(x86::kTestNone, Of(4, mask.reg), mask.reg, x, Number(4, bits));
}
void VectorEmitter::SetIfAny(int d, int a, uint32_t bits, uint32_t others) {
  const Mask mask = NewMask(4);
  body_.Vector(x86::kTest, Of(4), mask.reg, a, Number(4, others));
  Copy(d, a);
  body_.Vector(x86::kOr, Of(4, mask.reg), d, a, Number(4, bits));
}

void VectorEmitter::Cut(int bytes, int d, int a) {
  Op(bytes == 1 ? x86::kCut8 : x86::kCut16, 4, a, 0, d);
}

void VectorEmitter::Shift(int which, uint32_t width, int d, int a, int by) {
  if (width == 2) return body_.Vector(x86::kShift16, Of(2), which, d, a, by);
  const bool wide = width == 8;
  // Rotations and arithmetic shifts have the same opcode for both widths.
  const bool same = which == x86::kRotate || which == x86::kArithmeticRight;
  const VectorOp op =
      wide && !same ? x86::kShift64 : x86::Wide(x86::kShift32, wide);
  body_.Vector(op, Of(width), which, d, a, by);
}
void VectorEmitter::Rotate(uint32_t w, int d, int a, int by) {
  Shift(x86::kRotate, w, d, a, by);
}
// Adds up bits in lanes of 2, 4 and 8 bits, then the bytes.
void VectorEmitter::CountOnes(uint32_t w, int d, int a) {
  const auto each = [&](uint64_t byte) {
    const uint64_t bits = byte * 0x0101010101010101;
    return Number(w, w == 8 ? bits : bits & 0xffffffff);
  };
  const int other = NewRegister();
  Shift(x86::kLogicalRight, w, other, a, 1);
  Op(x86::kAnd, w, other, other, each(0x55));
  Sub(false, w, d, a, other);
  Shift(x86::kLogicalRight, w, other, d, 2);
  Op(x86::kAnd, w, other, other, each(0x33));
  Op(x86::kAnd, w, d, d, each(0x33));
  Add(false, w, d, d, other);
  Shift(x86::kLogicalRight, w, other, d, 4);
  Add(false, w, d, d, other);
  Op(x86::kAnd, w, d, d, each(0x0f));
  Free(other);
  if (w == 8) return Op(x86::kSumBytes, w, d, d, Zero(w));
  Op(x86::kMul, w, d, d, each(0x01));
  Shift(x86::kLogicalRight, w, d, d, 24);
}

void VectorEmitter::CountLeadingZeros(uint32_t w, int d, int a) {
  OpI(x86::kClz, w, d, 0, a);
}
void VectorEmitter::ShiftArithmetic(uint32_t w, int d, int a, int by) {
  OpI(x86::kShiftArithmetic, w, d, a, by);
}

void VectorEmitter::MulWide(int d, int a, int b) { OpI(x86::kMul, 8, d, a, b); }
void VectorEmitter::ExtremeI(bool max, RegisterType type, int d, int a, int b) {
  OpI(IsSigned(type) ? (max ? x86::kMaxSigned : x86::kMinSigned)
                     : (max ? x86::kMaxUnsigned : x86::kMinUnsigned),
      program::RegisterBytes(type), d, a, b);
}
void VectorEmitter::AbsI(uint32_t w, int d, int a) {
  Op(w == 8 ? x86::kAbsWide : x86::kAbs, w, d, 0, a);
}
void VectorEmitter::Not(uint32_t w, int d, int a) {
  body_.Vector(x86::Wide(x86::kTernary, w == 8), Of(w), d, a, a, 0x55);
}

void VectorEmitter::LowHalves(int d, int a) { Op(x86::kCut32, 8, a, 0, d); }
void VectorEmitter::FromU32(RegisterType to, int d, int a) {
  const bool wide = program::RegisterBytes(to) == 8;
  Op(wide ? x86::kU32ToF64 : x86::kU32ToF32, wide ? 8 : 4, d, 0, a);
}
void VectorEmitter::F32ToU32(int d, int a) {
  // The instruction gives MAX on overflow.
  Op(x86::kF32ToU32, 4, d, 0, a);
  const Mask mask = NewMask(4);
  CompareF(mask, 4, a, Zero(4), kGeF);
  Blend(4, mask, d, Zero(4), d);
}

#endif  // IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
