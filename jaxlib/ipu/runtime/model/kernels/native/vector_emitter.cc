#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

#include <algorithm>
#include <cstring>

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;
using program::RegisterType;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

constexpr size_t kLine = 64;  // of the cache
// Tables in registers; a guess: others hold what the program computes with.
constexpr size_t kMostTables = kRegisters / 4;

}  // namespace

int VectorEmitter::NewRegister() {
  for (int r = 0; r < top_; ++r) {
    if (!(used_ >> r & 1)) {
      used_ |= uint32_t{1} << r;
      peak_ = std::max(peak_, r);
      return r;
    }
  }
  failed_ = true;
  return 0;
}
// A register for a loop-invariant value; -1 if none is left.
int VectorEmitter::NewHoisted() {
  if (top_ <= kRegisters - most_hoisted_ || top_ - 1 <= peak_) return -1;
  return --top_;
}

// A vector with a number in all lanes.
int VectorEmitter::Number(uint32_t width, uint64_t bits) {
  const int reg = TryNumber(width, bits);
  if (reg >= 0) return reg;
  failed_ = true;
  return 0;
}

int VectorEmitter::TryNumber(uint32_t width, uint64_t bits) {
  const auto at = numbers_.find({width, bits});
  if (at != numbers_.end()) return at->second;
  asked_.insert({width, bits});
  const int reg = NewHoisted();
  if (reg < 0) return reg;
  numbers_[{width, bits}] = reg;
  if (bits <= 0xffffffff) {
    hoisted_.Move32(Gpr::kRcx, static_cast<int32_t>(bits));
  } else {
    hoisted_.Move(Gpr::kRcx, bits);
  }
  Broadcast(width, reg);
  return reg;
}

size_t VectorEmitter::Constant(const std::vector<uint8_t>& bytes) {
  size_t at = 0;
  for (; at + bytes.size() <= constants_.size(); at += kLine) {
    if (std::memcmp(&constants_[at], bytes.data(), bytes.size()) == 0) {
      return at;
    }
  }
  at = constants_.size();
  constants_.insert(constants_.end(), bytes.begin(), bytes.end());
  constants_.resize((constants_.size() + kLine - 1) / kLine * kLine);
  return at;
}

size_t VectorEmitter::InAllLanes(uint32_t width, uint64_t bits) {
  std::vector<uint8_t> bytes(kVectorBytes);
  for (size_t at = 0; at < bytes.size(); at += width) {
    std::memcpy(&bytes[at], &bits, width);
  }
  return Constant(bytes);
}

int VectorEmitter::TryTable(size_t constant) {
  if (const auto at = tables_.find(constant); at != tables_.end()) {
    return at->second;
  }
  const int reg = tables_.size() < kMostTables ? NewHoisted() : -1;
  if (reg < 0) return reg;
  hoisted_.VectorConstant(x86::kLoad, Lanes{kVectorBytes}, reg, 0, constant);
  return tables_[constant] = reg;
}

int VectorEmitter::Table(const std::vector<uint8_t>& bytes) {
  const size_t constant = Constant(bytes);
  int reg = TryTable(constant);
  if (reg >= 0) return reg;
  reg = NewRegister();
  body_.VectorConstant(x86::kLoad, Lanes{kVectorBytes}, reg, 0, constant);
  return reg;
}

void VectorEmitter::FreeTable(int reg) {
  if (reg < top_) Free(reg);
}

void VectorEmitter::OpConstant(VectorOp op, uint32_t width, int d, int a,
                               uint64_t bits) {
  const size_t constant = InAllLanes(width, bits);
  const int reg = TryTable(constant);
  if (reg >= 0) return Op(op, width, d, a, reg);
  body_.VectorConstant(op, Of(width), d, a, constant);
}

void VectorEmitter::Indices(RegisterType type, int d, Gpr first) {
  std::vector<uint8_t> numbers(kVectorBytes);
  for (uint32_t i = 0; i < kLanes<uint32_t>; ++i) {
    std::memcpy(&numbers[i * 4], &i, 4);
  }
  const int table = Table(numbers);
  body_.Vector(x86::kLoadLow, Lanes{16}, d, 0, static_cast<int>(first));
  Op(x86::kBroadcastLow, 4, d, 0, d);
  Op(x86::kAdd, 4, d, d, table);
  FreeTable(table);
  if (type == RegisterType::kF32) return Op(x86::kI32ToF32, 4, d, 0, d);
  if (type == RegisterType::kF64) return Op(x86::kI32ToF64, 8, d, 0, d);
  if (program::RegisterBytes(type) == 8) Op(x86::kExtendU32, 8, d, 0, d);
}

int VectorEmitter::One(uint32_t width, bool is_float) {
  if (!is_float) return Number(width, 1);
  return Number(width, width == 8 ? 0x3ff0000000000000 : 0x3f800000);
}
int VectorEmitter::SignBit(uint32_t width) {
  return Number(width, uint64_t{1} << (8 * width - 1));
}

int VectorEmitter::AllBits(uint32_t width) {
  return Number(width, width == 8 ? ~uint64_t{0} : 0xffffffff);
}

void VectorEmitter::F16Bits(int d, int x) {
  body_.Vector(x86::kToF16, Of(4), x, 0, d, 0);
  Op(x86::kExtendU16, 4, d, 0, d);
  const int narrowed = NewRegister();
  Shift(x86::kLogicalRight, 4, narrowed, x, 13);
  const Mask nan = NewMask(4);
  CompareF(nan, 4, x, x, kUnorderedF);
  KeepWithout(nan, x, 0x1fff);
  Insert(nan, d, narrowed, 0x200);
  Free(nan);
  Free(narrowed);
}

void VectorEmitter::FromF16(int d, int bits) {
  Cut(2, d, bits);
  Op(x86::kFromF16, 4, d, 0, d);
  const int widened = NewRegister();
  Shift(x86::kLeft, 4, widened, bits, 13);
  const Mask nan = NewMask(4);
  CompareF(nan, 4, d, d, kUnorderedF);
  Insert(nan, d, widened, 0x400000);
  Free(nan);
  Free(widened);
}

void VectorEmitter::Bf16Bits(int d, int x, bool moved) {
  RoundBf16(d, x, moved);
  Shift(x86::kLogicalRight, 4, d, d, 16);
}

void VectorEmitter::RoundBf16(int d, int x, bool moved) {
  const int quiet = NewRegister();
  Shift(x86::kLogicalRight, 4, d, x, 16);
  Op(x86::kAnd, 4, d, d, Number(4, 1));
  Op(x86::kAdd, 4, d, d, Number(4, 0x7fff));
  Op(x86::kAdd, 4, d, d, x);
  if (moved) {  // quiet only if the payload does not fit
    SetIfAny(quiet, x, 0x400000, 0xffff);
  } else {
    Op(x86::kOr, 4, quiet, x, Number(4, 0x400000));
  }
  const Mask nan = NewMask(4);
  CompareF(nan, 4, x, x, kUnorderedF);
  Blend(4, nan, d, d, quiet);
  Free(nan);
  Free(quiet);
}

void VectorEmitter::Add(bool is_float, uint32_t w, int d, int a, int b) {
  if (is_float) return OpF(x86::kAddF, w, d, a, b);
  Op(w == 8 ? x86::kAddWide : x86::kAdd, w, d, a, b);
}
void VectorEmitter::Sub(bool is_float, uint32_t w, int d, int a, int b) {
  if (is_float) return OpF(x86::kSubF, w, d, a, b);
  Op(w == 8 ? x86::kSubWide : x86::kSub, w, d, a, b);
}
void VectorEmitter::Mul(bool is_float, uint32_t w, int d, int a, int b) {
  if (is_float) return OpF(x86::kMulF, w, d, a, b);
  if (w == 8) return MulWide(d, a, b);
  Op(x86::kMul, 4, d, a, b);
}

void VectorEmitter::AddLanes(RegisterType type, bool negative, int d, int a) {
  const bool is_float = program::IsFloat(type);
  const uint32_t w = program::RegisterBytes(type);
  const int lanes = lanes_;
  const int other = NewRegister();
  if (lanes_ * static_cast<int>(w) == 32) {
    body_.Vector(x86::kHighHalf, {32}, a, 0, other, 1);
    lanes_ /= 2;
    Add(is_float, w, d, a, other);
    a = d;
  }
  constexpr int kHighest = 0x0e, kSecond = 0x01;  // the lanes that come first
  body_.Vector(x86::kPermute, {16}, other, 0, a, kHighest);
  Add(is_float, w, d, a, other);
  if (w == 4) {
    body_.Vector(x86::kPermute, {16}, other, 0, d, kSecond);
    Add(is_float, w, d, d, other);
  }
  if (is_float && negative) Add(is_float, w, d, d, Zero(w));
  lanes_ = lanes;
  Free(other);
}

void VectorEmitter::Compare(const Instruction& i, Mask mask, int a, int b) {
  if (!program::IsFloat(i.type)) return CompareI(i.op, i.type, mask, a, b);
  if (i.op == Opcode::kIsFinite) {  // a - a is 0, otherwise NaN
    const int difference = NewRegister();
    const uint32_t w = program::RegisterBytes(i.type);
    OpF(x86::kSubF, w, difference, a, a);
    CompareF(mask, w, difference, difference, kOrderedF);
    return Free(difference);
  }
  constexpr int kHow[] = {kEqF, kNeF, kLtF, kLeF, kGtF, kGeF};
  const auto k = static_cast<int>(i.op) - static_cast<int>(Opcode::kEq);
  CompareF(mask, program::RegisterBytes(i.type), a, b, kHow[k]);
}

void VectorEmitter::SignF(uint32_t w, int d, int a) {
  const Mask differs = NewMask(w);
  CompareF(differs, w, a, Zero(w), kDiffersF);
  const int signed_one = NewRegister();
  OpI(x86::kAnd, w, signed_one, a, SignBit(w));
  OpI(x86::kOr, w, signed_one, signed_one, One(w, true));
  Blend(w, differs, d, a, signed_one);
  Free(signed_one);
  Free(differs);
}

void VectorEmitter::Convert(RegisterType from, RegisterType to, int d, int a) {
  const auto one = [&](VectorOp op, uint32_t width) { Op(op, width, d, 0, a); };
  const auto pair = [](RegisterType f, RegisterType t) {
    return static_cast<int>(f) * 8 + static_cast<int>(t);
  };
  using enum RegisterType;
  const int which = pair(from, to);
  if (which == pair(kI32, kF32)) return one(x86::kI32ToF32, 4);
  if (which == pair(kF32, kF64)) return one(x86::kF32ToF64, 8);
  if (which == pair(kF64, kF32)) return one(x86::kF64ToF32, 8);
  if (which == pair(kI32, kF64)) return one(x86::kI32ToF64, 8);
  if (from == kU32 && program::IsFloat(to)) return FromU32(to, d, a);
  if (which == pair(kF32, kI32)) {  // the instruction gives MIN on underflow
    one(x86::kF32ToI32, 4);
    const Mask mask = NewMask(4);
    CompareF(mask, 4, a, Number(4, 0x4f000000), kGeF);
    Blend(4, mask, d, d, Number(4, 0x7fffffff));
    CompareF(mask, 4, a, a, kUnorderedF);
    Blend(4, mask, d, d, Zero(4));
    return Free(mask);
  }
  if (which == pair(kF32, kU32)) return F32ToU32(d, a);
  const uint32_t before = program::RegisterBytes(from);
  const uint32_t after = program::RegisterBytes(to);
  if (before == after) return OpI(x86::kMove, after, d, 0, a);
  if (before == 8) return LowHalves(d, a);
  one(from == kI32 ? x86::kExtendI32 : x86::kExtendU32, 8);
}

void VectorEmitter::Round(uint32_t w, int d, int a, int how) {
  body_.Vector(w == 8 ? x86::kRoundF64 : x86::kRoundF32, Of(w), d, 0, a, how);
}

// Two operations, each rounded separately; rotations.
bool VectorEmitter::ComputeFused(const Instruction& i, int d, int a, int b,
                                 int c) {
  const uint32_t w = program::RegisterBytes(i.type);
  const bool is_float = program::IsFloat(i.type);
  switch (OpNumber(i.op)) {
    case OpNumber(program::kMulAdd):
      Mul(is_float, w, d, a, b);
      Add(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kMulSub):
      Mul(is_float, w, d, a, b);
      Sub(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kNegMulAdd):
      Mul(is_float, w, d, a, b);
      Sub(is_float, w, d, c, d);
      return true;
    case OpNumber(program::kMulMul):
      Mul(is_float, w, d, a, b);
      Mul(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kAddAdd):
      Add(is_float, w, d, a, b);
      Add(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kAddMul):
      Add(is_float, w, d, a, b);
      Mul(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kSubMul):
      Sub(is_float, w, d, a, b);
      Mul(is_float, w, d, d, c);
      return true;
    case OpNumber(program::kRotateLeft):
      Rotate(w, d, a, static_cast<int>(i.imm));
      return true;
    case OpNumber(program::kDivideBy):
      DivideBy(i, d, a, b);
      return true;
    case OpNumber(program::kRemainderBy):
      DivideBy(i, d, a, b);
      Mul(false, w, d, d, c);
      Sub(false, w, d, a, d);
      return true;
    case OpNumber(program::kRotateXor):
      Rotate(w, d, a, static_cast<int>(i.imm));
      OpI(x86::kXor, w, d, d, b);
      return true;
    default:
      return false;
  }
}

void VectorEmitter::Compute(const Instruction& i, int d, int a, int b, int c,
                            const KnownOperands& known) {
  if (ComputeFused(i, d, a, b, c)) return;
  const uint32_t w = program::RegisterBytes(i.type);
  const bool is_float = program::IsFloat(i.type);
  switch (i.op) {
    case Opcode::kConvert:
      return Convert(program::TypeBefore(i), i.type, d, a);
    case Opcode::kWrapI8:
    case Opcode::kWrapI16: {
      const int unused = i.op == Opcode::kWrapI8 ? 24 : 16;
      Shift(x86::kLeft, 4, d, a, unused);
      return Shift(x86::kArithmeticRight, 4, d, d, unused);
    }
    case Opcode::kWrapU8:
      return Op(x86::kAnd, 4, d, a, Number(4, 0xff));
    case Opcode::kWrapU16:
      return Op(x86::kAnd, 4, d, a, Number(4, 0xffff));
    case Opcode::kRoundF16:
      body_.Vector(x86::kToF16, Of(4), a, 0, d, 0);
      return Op(x86::kFromF16, 4, d, 0, d);
    case Opcode::kRoundBf16:
      RoundBf16(d, a, /*moved=*/false);
      return Op(x86::kAnd, 4, d, d, Number(4, 0xffff0000));
    case Opcode::kBitsF16:
      return F16Bits(d, a);
    case Opcode::kBitsBf16:
      return Bf16Bits(d, a, /*moved=*/true);
    case Opcode::kFromBitsF16:
      return FromF16(d, a);
    case Opcode::kFromBitsBf16:
      return Shift(x86::kLeft, 4, d, a, 16);
    case Opcode::kNegate:
      if (is_float) return OpI(x86::kXor, w, d, a, SignBit(w));
      return Sub(false, w, d, Zero(w), a);
    case Opcode::kAbs:
      if (is_float) {
        Shift(x86::kLeft, w, d, a, 1);
        return Shift(x86::kLogicalRight, w, d, d, 1);
      }
      if (IsSigned(i.type)) return AbsI(w, d, a);
      return OpI(x86::kMove, w, d, 0, a);
    case Opcode::kSign:
      if (is_float) return SignF(w, d, a);
      if (IsSigned(i.type)) {
        ExtremeI(false, i.type, d, a, One(w, false));
        return ExtremeI(true, i.type, d, d, AllBits(w));
      }
      return ExtremeI(false, i.type, d, a, One(w, false));
    case Opcode::kNot:
      return Not(w, d, a);
    case Opcode::kFloor:
      return Round(w, d, a, 9);
    case Opcode::kCeil:
      return Round(w, d, a, 10);
    case Opcode::kRoundEven:
      return Round(w, d, a, 8);
    case Opcode::kSqrt:
      return OpF(x86::kSqrtF, w, d, 0, a);
    case Opcode::kRsqrt:
      OpF(x86::kSqrtF, w, d, 0, a);
      return OpF(x86::kDivF, w, d, One(w, true), d);
    case Opcode::kExp:
      return Exp(w, d, a);
    case Opcode::kLogistic:
      return Logistic(w, d, a);
    case Opcode::kPopcnt:
      return CountOnes(w, d, a);
    case Opcode::kClz:
      return CountLeadingZeros(w, d, a);
    case Opcode::kAdd:
      return Add(is_float, w, d, a, b);
    case Opcode::kSub:
      return Sub(is_float, w, d, a, b);
    case Opcode::kMul:
      return Mul(is_float, w, d, a, b);
    case Opcode::kDiv:
      return OpF(x86::kDivF, w, d, a, b);
    case Opcode::kMax:
      return Extreme(true, i.type, d, a, b, known[0], known[1]);
    case Opcode::kMin:
      return Extreme(false, i.type, d, a, b, known[0], known[1]);
    case Opcode::kClamp: {
      const int at_least = NewRegister();
      Extreme(true, i.type, at_least, b, a, known[1], known[0]);
      Extreme(false, i.type, d, at_least, c, {}, known[2]);
      return Free(at_least);
    }
    case Opcode::kAnd:
      return OpI(x86::kAnd, w, d, a, b);
    case Opcode::kOr:
      return OpI(x86::kOr, w, d, a, b);
    case Opcode::kXor:
      return OpI(x86::kXor, w, d, a, b);
    case Opcode::kShl:
      return OpI(x86::kShiftLeft, w, d, a, b);
    case Opcode::kShrLogical:
      return OpI(x86::kShiftLogical, w, d, a, b);
    case Opcode::kShrArithmetic:
      return ShiftArithmetic(w, d, a, b);
    default:
      failed_ = true;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
