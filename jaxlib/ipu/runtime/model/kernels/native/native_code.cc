#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

#ifdef IPU_AVX512

namespace {

using program::Instruction;
using program::Opcode;
using program::RegisterType;

constexpr int kRegisters = 32;
// The most that hold what is the same in all turns of the loop.
constexpr int kMostHoisted = 16;
// Masks: the last elements of a block, two for within an instruction, and
// comparisons that are waiting for their SELECT.
constexpr int kTail = 1;
constexpr int kMask = 2, kOtherMask = 3;
constexpr int kFirstFlags = 4, kMasks = 8;

// Comparisons of floats (ordered, but for != ) and of integers.
enum : int {
  kEqF = 0,
  kLtF = 1,
  kLeF = 2,
  kUnorderedF = 3,
  kNeF = 4,
  kDiffersF = 12,
  kGeF = 13,
  kGtF = 14
};  // clang-format off
enum : int { kEqI = 0, kLtI = 1, kLeI = 2, kNeI = 4, kGeI = 5, kGtI = 6 };

// The general registers that point at blocks, beside rcx.
constexpr Gpr kPointers[] = {Gpr::kR8,  Gpr::kR9,  Gpr::kR10, Gpr::kR11,
                             Gpr::kRbx, Gpr::kRbp, Gpr::kR12, Gpr::kR13,
                             Gpr::kR14, Gpr::kR15};
constexpr size_t kFreelyUsed = 4;  // callers do not expect them to stay

// Super-instructions are no enumerators.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

class Compiler {
 public:
  explicit Compiler(std::span<const NativeValue> values) : values_(values) {
    for (const NativeValue& v : values) {
      if (v.width == 8) lanes_ = 8;
      if (v.kind != NativeValue::kComputed) continue;
      if (program::RegisterBytes(v.instruction.type) == 8) lanes_ = 8;
    }
  }

  std::vector<uint8_t> Run() {
    // rdi: the frame, rsi: its slots, rax: the index, rdx: where to stop.
    Assembler& a = body_;
    a.Zero(Gpr::kRax);
    a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
    a.And(Gpr::kRdx, -lanes_);
    const size_t short_block = a.Jump(0x84);
    const size_t loop = a.size();
    Turn(/*tail=*/false);
    a.Add(Gpr::kRax, lanes_);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    a.JumpBack(0x82, loop);
    a.Land(short_block);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.And(Gpr::kRcx, lanes_ - 1);
    const size_t no_tail = a.Jump(0x84);
    a.Bytes({0xba, 1, 0, 0, 0,        // mov edx, 1
             0xd3, 0xe2,              // shl edx, cl
             0xff, 0xca,              // dec edx
             0xc5, 0xfb, 0x92, 0xc0 | kTail << 3 | 2});  // kmovd k1, edx
    Turn(/*tail=*/true);
    a.Land(no_tail);
    a.Bytes({0xc5, 0xf8, 0x77});  // vzeroupper
    for (size_t k = pointers_.size(); k-- > kFreelyUsed;) a.Pop(kPointers[k]);
    a.Bytes({0xc3});
    if (failed_) return {};

    Assembler all;
    for (size_t k = kFreelyUsed; k < pointers_.size(); ++k) {
      all.Push(kPointers[k]);
    }
    all.Load(Gpr::kRsi, Gpr::kRdi, offsetof(Frame, slots));
    all.Append(hoisted_);
    for (size_t k = 0; k < pointers_.size(); ++k) Point(all, k);
    all.Append(body_);
    return all.code();
  }

 private:
  // What a general register points at: a slot's block or an operand.
  using Target = std::pair<int, const Source*>;
  // Where a value is within a turn.
  struct State {
    int reg = -1;
    int flags = -1;  // the mask that holds it, if it is a comparison
    bool hoisted = false;
  };

  int VectorBytes(uint32_t width) const {
    return lanes_ * static_cast<int>(width);
  }
  Lanes Of(uint32_t width) const { return {VectorBytes(width)}; }
  Lanes Masked(uint32_t width, int mask, bool zero = false) const {
    return {VectorBytes(width), mask, zero};
  }
  // For what is read from or written to memory.
  Lanes Memory(uint32_t width, bool zero) const {
    return {VectorBytes(width), tail_ ? kTail : 0, tail_ && zero};
  }

  int NewRegister() {
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
  void Free(int reg) { used_ &= ~(uint32_t{1} << reg); }

  // A register that keeps what it has in all turns; -1 if none is left.
  int NewHoisted() {
    if (top_ <= kRegisters - kMostHoisted || top_ - 1 <= peak_) return -1;
    return --top_;
  }

  // A vector of one number.
  int Number(uint32_t width, uint64_t bits) {
    const auto [at, is_new] = numbers_.insert({{width, bits}, 0});
    if (is_new) {
      at->second = NewHoisted();
      if (at->second < 0) {
        failed_ = true;
        return 0;
      }
      hoisted_.Move(Gpr::kRcx, bits);
      hoisted_.Vector(x86::Wide(x86::kBroadcast, width == 8), Of(width),
                      at->second, 0, static_cast<int>(Gpr::kRcx));
    }
    return at->second;
  }

  Gpr Pointer(Target target) {
    for (size_t k = 0; k < pointers_.size(); ++k) {
      if (pointers_[k] == target) return kPointers[k];
    }
    if (pointers_.size() < std::size(kPointers)) {
      pointers_.push_back(target);
      return kPointers[pointers_.size() - 1];
    }
    if (target.second != nullptr) failed_ = true;
    body_.Load(Gpr::kRcx, Gpr::kRsi, target.first * 8);
    return Gpr::kRcx;
  }

  // Makes pointer k ready, before the loop.
  void Point(Assembler& a, size_t k) const {
    const auto [slot, source] = pointers_[k];
    const Gpr r = kPointers[k];
    if (source == nullptr) return a.Load(r, Gpr::kRsi, slot * 8);
    const Walk& walk = source->walk;
    a.Load(r, Gpr::kRdi, offsetof(Frame, bases));
    a.Load(r, r, static_cast<int32_t>(walk.base() * 8));
    a.Move(Gpr::kRcx, static_cast<uint64_t>(walk.offset()));
    a.Add(r, Gpr::kRcx);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, begin));
    a.AddScaled(r, Gpr::kRcx, static_cast<int>(walk.item_size()));
  }

  // --- Values ----------------------------------------------------------------

  // The register that a value is in.
  int Get(int value) {
    State& state = states_[value];
    if (state.reg >= 0) return state.reg;
    const NativeValue& v = values_[value];
    if (v.kind == NativeValue::kStill) {
      const int reg = NewHoisted();
      Assembler& to = reg < 0 ? body_ : hoisted_;
      state.hoisted = reg >= 0;
      state.reg = state.hoisted ? reg : NewRegister();
      to.Load(Gpr::kRcx, Gpr::kRsi, v.slot * 8);
      to.Vector(x86::kLoad, Of(v.width), state.reg, 0,
                Address{Gpr::kRcx, /*indexed=*/false});
      return state.reg;
    }
    state.reg = NewRegister();
    if (state.flags >= 0) {
      body_.Vector(x86::kMove, Masked(4, state.flags, /*zero=*/true), state.reg,
                   0, Number(4, 1));
    } else if (v.kind == NativeValue::kBlock) {
      body_.Vector(x86::Wide(x86::kLoad, v.width == 8), Memory(v.width, true),
                   state.reg, 0, At({v.slot, nullptr}, v.width));
    } else {
      LoadElements(*v.source, v.width, state.reg);
    }
    return state.reg;
  }

  Address At(Target target, uint32_t scale) {
    return {Pointer(target), true, static_cast<uint8_t>(scale)};
  }

  void LoadElements(const Source& source, uint32_t width, int reg) {
    const Address at = At({0, &source}, source.walk.item_size());
    const auto load = [&](VectorOp op) {
      body_.Vector(op, Memory(width, true), reg, 0, at);
    };
    switch (source.dtype) {
      case program::kBool:
      case program::kU8:
        return load(x86::kExtendU8);
      case program::kI8:
        return load(x86::kExtendI8);
      case program::kU16:
        return load(x86::kExtendU16);
      case program::kI16:
        return load(x86::kExtendI16);
      case program::kF16:
        return load(x86::kFromF16);
      case program::kBF16:
        load(x86::kExtendU16);
        return Shift(x86::kLeft, 4, reg, reg, 16);
      default:
        return load(x86::Wide(x86::kLoad, width == 8));
    }
  }

  void StoreValue(const NativeValue& v, int value) {
    const int reg = Get(value);
    const uint32_t item =
        v.stored_dtype ? program::ItemSize(v.stored_dtype) : v.width;
    const Address at = At({v.stored, nullptr}, item);
    const auto store = [&](VectorOp op, int from) {
      body_.Vector(op, Memory(v.width, false), from, 0, at);
    };
    switch (v.stored_dtype) {
      case program::kBool: {
        const int flag = NewRegister();
        body_.Vector(x86::kTest, Of(4), kMask, reg, reg);
        body_.Vector(x86::kMove, Masked(4, kMask, true), flag, 0, Number(4, 1));
        store(x86::kCut8, flag);
        return Free(flag);
      }
      case program::kI8:
      case program::kU8:
        return store(x86::kCut8, reg);
      case program::kI16:
      case program::kU16:
        return store(x86::kCut16, reg);
      case program::kF16:
        store(x86::kToF16, reg);
        return body_.Bytes({0});  // to nearest, ties to even
      case program::kBF16: {
        const int bits = NewRegister();
        Bf16Bits(bits, reg);
        store(x86::kCut16, bits);
        return Free(bits);
      }
      default:
        return store(x86::Wide(x86::kStore, v.width == 8), reg);
    }
  }

  // One vector of everything.
  void Turn(bool tail) {
    tail_ = tail;
    std::vector<State> before(values_.size());
    for (size_t k = 0; k < states_.size(); ++k) {
      if (states_[k].hoisted) before[k] = states_[k];
    }
    states_ = std::move(before);
    used_ = 0;
    flags_used_ = 0;
    for (size_t k = 0; k < values_.size() && !failed_; ++k) {
      const NativeValue& v = values_[k];
      if (v.kind != NativeValue::kComputed) continue;
      const int value = static_cast<int>(k);
      Compute(value);
      if (v.stored >= 0) StoreValue(v, value);
      for (int operand : v.operands) {
        if (operand >= 0 && values_[operand].last_use == value) Drop(operand);
      }
      if (v.last_use < 0) Drop(value);
    }
  }

  void Drop(int value) {
    State& state = states_[value];
    if (state.hoisted) return;
    if (state.reg >= 0) Free(state.reg);
    if (state.flags >= 0) flags_used_ &= ~(1u << state.flags);
    state = State{};
  }

  // --- Instructions ----------------------------------------------------------

  void Op(VectorOp op, uint32_t width, int d, int a, int b) {
    body_.Vector(op, Of(width), d, a, b);
  }
  // Integers of either width.
  void OpI(VectorOp op, uint32_t width, int d, int a, int b) {
    Op(x86::Wide(op, width == 8), width, d, a, b);
  }
  void OpF(uint8_t code, uint32_t width, int d, int a, int b) {
    Op(x86::Float(code, width == 8), width, d, a, b);
  }
  void Shift(int which, uint32_t width, int d, int a, int by) {
    const bool wide = width == 8;
    // Rotations and arithmetic shifts are 64 bits wide by EVEX.W alone.
    const bool same = which == x86::kRotate || which == x86::kArithmeticRight;
    const VectorOp op = wide && !same ? x86::kShift64
                                      : x86::Wide(x86::kShift32, wide);
    body_.Vector(op, Of(width), which, d, a, by);
  }
  void CompareF(int mask, uint32_t width, int a, int b, int how) {
    body_.Vector(x86::Float(x86::kCompareF, width == 8), Of(width), mask, a, b,
                 how);
  }
  void CompareI(int mask, uint32_t width, bool is_signed, int a, int b,
                int how) {
    const VectorOp op = is_signed ? x86::kCompareSigned : x86::kCompareUnsigned;
    body_.Vector(x86::Wide(op, width == 8), Of(width), mask, a, b, how);
  }
  // d = mask ? yes : no
  void Blend(uint32_t width, int mask, int d, int no, int yes) {
    body_.Vector(x86::Wide(x86::kBlend, width == 8), Masked(width, mask), d, no,
                 yes);
  }
  int Zero(uint32_t width) { return Number(width, 0); }
  int One(uint32_t width, bool is_float) {
    if (!is_float) return Number(width, 1);
    return Number(width, width == 8 ? 0x3ff0000000000000 : 0x3f800000);
  }
  int SignBit(uint32_t width) {
    return Number(width, uint64_t{1} << (8 * width - 1));
  }

  void Bf16Bits(int d, int x) {
    const int quiet = NewRegister();
    Shift(x86::kLogicalRight, 4, d, x, 16);
    Op(x86::kAnd, 4, d, d, Number(4, 1));
    Op(x86::kAdd, 4, d, d, Number(4, 0x7fff));
    Op(x86::kAdd, 4, d, d, x);
    Op(x86::kOr, 4, quiet, x, Number(4, 0x400000));
    CompareF(kMask, 4, x, x, kUnorderedF);
    Blend(4, kMask, d, d, quiet);
    Shift(x86::kLogicalRight, 4, d, d, 16);
    Free(quiet);
  }

  // A NaN wins, the first of two; -0 < +0.
  void ExtremeF(bool max, uint32_t w, int d, int a, int b) {
    const int other = NewRegister();
    const uint8_t code = max ? x86::kMaxF : x86::kMinF;
    OpF(code, w, d, a, b);      // b if they are equal or not ordered
    OpF(code, w, other, b, a);  // a then
    OpI(max ? x86::kAnd : x86::kOr, w, d, d, other);
    CompareF(kMask, w, b, b, kUnorderedF);
    Blend(w, kMask, d, d, b);
    CompareF(kMask, w, a, a, kUnorderedF);
    Blend(w, kMask, d, d, a);
    Free(other);
  }
  void Extreme(bool max, RegisterType type, uint32_t w, int d, int a, int b) {
    if (program::IsFloat(type)) return ExtremeF(max, w, d, a, b);
    const bool is_signed =
        type == RegisterType::kI32 || type == RegisterType::kI64;
    OpI(is_signed ? (max ? x86::kMaxSigned : x86::kMinSigned)
                  : (max ? x86::kMaxUnsigned : x86::kMinUnsigned),
        w, d, a, b);
  }

  void AddAny(bool is_float, uint32_t w, int d, int a, int b) {
    if (is_float) return OpF(x86::kAddF, w, d, a, b);
    Op(w == 8 ? x86::kAddWide : x86::kAdd, w, d, a, b);
  }
  void SubAny(bool is_float, uint32_t w, int d, int a, int b) {
    if (is_float) return OpF(x86::kSubF, w, d, a, b);
    Op(w == 8 ? x86::kSubWide : x86::kSub, w, d, a, b);
  }
  void MulAny(bool is_float, uint32_t w, int d, int a, int b) {
    if (is_float) return OpF(x86::kMulF, w, d, a, b);
    OpI(x86::kMul, w, d, a, b);
  }

  void CompareAny(int value, Opcode op, RegisterType type, uint32_t w, int a,
                  int b) {
    int mask = kFirstFlags;
    while (mask < kMasks && flags_used_ >> mask & 1) ++mask;
    const bool waits = mask < kMasks;
    if (!waits) mask = kMask;
    const auto k = static_cast<int>(op) - static_cast<int>(Opcode::kEq);
    if (program::IsFloat(type)) {
      constexpr int kHow[] = {kEqF, kNeF, kLtF, kLeF, kGtF, kGeF};
      CompareF(mask, w, a, b, kHow[k]);
    } else {
      constexpr int kHow[] = {kEqI, kNeI, kLtI, kLeI, kGtI, kGeI};
      const bool is_signed =
          type == RegisterType::kI32 || type == RegisterType::kI64;
      CompareI(mask, w, is_signed, a, b, kHow[k]);
    }
    SetFlags(value, mask, waits);
  }
  void SetFlags(int value, int mask, bool waits) {
    states_[value].flags = mask;
    if (waits) {
      flags_used_ |= 1u << mask;
    } else {
      Get(value);
      states_[value].flags = -1;
    }
  }

  void SignF(uint32_t w, int d, int a) {
    CompareF(kMask, w, a, Zero(w), kDiffersF);
    const int signed_one = NewRegister();
    OpI(x86::kAnd, w, signed_one, a, SignBit(w));
    OpI(x86::kOr, w, signed_one, signed_one, One(w, true));
    Blend(w, kMask, d, a, signed_one);
    Free(signed_one);
  }

  void Convert(RegisterType from, RegisterType to, int d, int a) {
    const auto one = [&](VectorOp op, uint32_t width) {
      Op(op, width, d, 0, a);
    };
    const auto pair = [](RegisterType f, RegisterType t) {
      return static_cast<int>(f) * 8 + static_cast<int>(t);
    };
    using enum RegisterType;
    const int which = pair(from, to);
    if (which == pair(kI32, kF32)) return one(x86::kI32ToF32, 4);
    if (which == pair(kU32, kF32)) return one(x86::kU32ToF32, 4);
    if (which == pair(kF32, kF64)) return one(x86::kF32ToF64, 8);
    if (which == pair(kF64, kF32)) return one(x86::kF64ToF32, 8);
    if (which == pair(kI32, kF64)) return one(x86::kI32ToF64, 8);
    if (which == pair(kU32, kF64)) return one(x86::kU32ToF64, 8);
    if (which == pair(kF32, kI32)) {  // too small gives MIN by itself
      one(x86::kF32ToI32, 4);
      CompareF(kMask, 4, a, Number(4, 0x4f000000), kGeF);
      Blend(4, kMask, d, d, Number(4, 0x7fffffff));
      CompareF(kMask, 4, a, a, kUnorderedF);
      return Blend(4, kMask, d, d, Zero(4));
    }
    if (which == pair(kF32, kU32)) {  // too large gives MAX by itself
      one(x86::kF32ToU32, 4);
      CompareF(kMask, 4, a, Zero(4), kGeF);
      return Blend(4, kMask, d, Zero(4), d);
    }
    const uint32_t before = program::RegisterBytes(from);
    const uint32_t after = program::RegisterBytes(to);
    if (before == after) return OpI(x86::kMove, after, d, 0, a);
    if (before == 8) return Op(x86::kCut32, 8, a, 0, d);
    one(from == kI32 ? x86::kExtendI32 : x86::kExtendU32, 8);
  }

  // The value's register gets what its instruction says.
  void Compute(int value) {
    const NativeValue& v = values_[value];
    const Instruction& i = v.instruction;
    const uint32_t w = program::RegisterBytes(i.type);
    const bool is_float = program::IsFloat(i.type);
    if (i.op == Opcode::kSelect) return Select(value, w);
    std::array<int, 3> r = {};
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] >= 0) r[k] = Get(v.operands[k]);
    }
    const auto [a, b, c] = r;
    if (i.op >= Opcode::kEq && i.op <= Opcode::kGe) {
      return CompareAny(value, i.op, i.type, w, a, b);
    }
    const int d = NewRegister();
    states_[value].reg = d;
    switch (OpNumber(i.op)) {
      case OpNumber(program::kMulAdd):
        MulAny(is_float, w, d, a, b);
        return AddAny(is_float, w, d, d, c);
      case OpNumber(program::kMulSub):
        MulAny(is_float, w, d, a, b);
        return SubAny(is_float, w, d, d, c);
      case OpNumber(program::kNegMulAdd):
        MulAny(is_float, w, d, a, b);
        return SubAny(is_float, w, d, c, d);
      case OpNumber(program::kMulMul):
        MulAny(is_float, w, d, a, b);
        return MulAny(is_float, w, d, d, c);
      case OpNumber(program::kAddAdd):
        AddAny(is_float, w, d, a, b);
        return AddAny(is_float, w, d, d, c);
      case OpNumber(program::kAddMul):
        AddAny(is_float, w, d, a, b);
        return MulAny(is_float, w, d, d, c);
      case OpNumber(program::kSubMul):
        SubAny(is_float, w, d, a, b);
        return MulAny(is_float, w, d, d, c);
      case OpNumber(program::kRotateLeft):
        return Shift(x86::kRotate, w, d, a, static_cast<int>(i.imm));
      case OpNumber(program::kRotateXor):
        Shift(x86::kRotate, w, d, a, static_cast<int>(i.imm));
        return OpI(x86::kXor, w, d, d, b);
      default:
        break;
    }
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
        Bf16Bits(d, a);
        return Shift(x86::kLeft, 4, d, d, 16);
      case Opcode::kBitsBf16:
        return Bf16Bits(d, a);
      case Opcode::kFromBitsBf16:
        return Shift(x86::kLeft, 4, d, a, 16);
      case Opcode::kNegate:
        if (is_float) return OpI(x86::kXor, w, d, a, SignBit(w));
        return SubAny(false, w, d, Zero(w), a);
      case Opcode::kAbs:
        if (is_float) {
          Shift(x86::kLeft, w, d, a, 1);
          return Shift(x86::kLogicalRight, w, d, d, 1);
        }
        if (i.type == RegisterType::kI32 || i.type == RegisterType::kI64) {
          return Op(w == 8 ? x86::kAbsWide : x86::kAbs, w, d, 0, a);
        }
        return OpI(x86::kMove, w, d, 0, a);
      case Opcode::kSign:
        if (is_float) return SignF(w, d, a);
        if (i.type == RegisterType::kI32 || i.type == RegisterType::kI64) {
          OpI(x86::kMinSigned, w, d, a, One(w, false));
          return OpI(x86::kMaxSigned, w, d, d,
                     Number(w, w == 8 ? ~uint64_t{0} : 0xffffffff));
        }
        return OpI(x86::kMinUnsigned, w, d, a, One(w, false));
      case Opcode::kNot:
        body_.Vector(x86::Wide(x86::kTernary, w == 8), Of(w), d, a, a, 0x55);
        return;
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
      case Opcode::kClz:
        return OpI(x86::kClz, w, d, 0, a);
      case Opcode::kAdd:
        return AddAny(is_float, w, d, a, b);
      case Opcode::kSub:
        return SubAny(is_float, w, d, a, b);
      case Opcode::kMul:
        return MulAny(is_float, w, d, a, b);
      case Opcode::kDiv:
        return OpF(x86::kDivF, w, d, a, b);
      case Opcode::kMax:
        return Extreme(true, i.type, w, d, a, b);
      case Opcode::kMin:
        return Extreme(false, i.type, w, d, a, b);
      case Opcode::kClamp: {
        const int at_least = NewRegister();
        Extreme(true, i.type, w, at_least, b, a);
        Extreme(false, i.type, w, d, at_least, c);
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
        return OpI(x86::kShiftArithmetic, w, d, a, b);
      default:
        failed_ = true;
    }
  }

  void Round(uint32_t w, int d, int a, int how) {
    body_.Vector(w == 8 ? x86::kRoundF64 : x86::kRoundF32, Of(w), d, 0, a, how);
  }

  void Select(int value, uint32_t w) {
    const auto [flag, yes, no] = values_[value].operands;
    const int y = Get(yes), n = Get(no);
    int mask = states_[flag].flags;
    if (mask < 0) {
      mask = kMask;
      const int f = Get(flag);
      body_.Vector(x86::kTest, Of(4), mask, f, f);
    }
    const int d = NewRegister();
    states_[value].reg = d;
    Blend(w, mask, d, n, y);
  }

  const std::span<const NativeValue> values_;
  int lanes_ = 16;
  bool tail_ = false;
  bool failed_ = false;
  Assembler hoisted_;
  Assembler body_;
  std::vector<Target> pointers_;
  std::map<std::pair<uint32_t, uint64_t>, int> numbers_;
  int top_ = kRegisters;  // registers from here on keep what they have
  int peak_ = -1;         // the highest of those that change
  uint32_t used_ = 0;
  uint32_t flags_used_ = 0;
  std::vector<State> states_;
};

}  // namespace

bool IsNative(const Instruction& i) {
  using enum RegisterType;
  if (i.op == program::kRotateLeft || i.op == program::kRotateXor ||
      (i.op >= program::kMulAdd && i.op <= program::kSubMul)) {
    return true;
  }
  switch (i.op) {
    case Opcode::kConvert: {
      const RegisterType from = program::TypeBefore(i);
      if (!program::IsFloat(from) && !program::IsFloat(i.type)) return true;
      if (from == i.type) return true;
      const auto wide_integer = [](RegisterType t) {
        return t == kI64 || t == kU64;
      };
      if (wide_integer(from) || wide_integer(i.type)) return false;
      return from != kF64 || i.type == kF32;
    }
    case Opcode::kDiv:
      return program::IsFloat(i.type);
    case Opcode::kWrapI8:
    case Opcode::kWrapI16:
    case Opcode::kWrapU8:
    case Opcode::kWrapU16:
    case Opcode::kRoundF16:
    case Opcode::kRoundBf16:
    case Opcode::kBitsBf16:
    case Opcode::kFromBitsBf16:
    case Opcode::kNegate:
    case Opcode::kAbs:
    case Opcode::kSign:
    case Opcode::kNot:
    case Opcode::kFloor:
    case Opcode::kCeil:
    case Opcode::kRoundEven:
    case Opcode::kSqrt:
    case Opcode::kRsqrt:
    case Opcode::kClz:
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kMax:
    case Opcode::kMin:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kShl:
    case Opcode::kShrLogical:
    case Opcode::kShrArithmetic:
    case Opcode::kEq:
    case Opcode::kNe:
    case Opcode::kLt:
    case Opcode::kLe:
    case Opcode::kGt:
    case Opcode::kGe:
    case Opcode::kSelect:
    case Opcode::kClamp:
      return true;
    default:
      return false;
  }
}

bool IsNativeElement(uint8_t) { return true; }

std::vector<uint8_t> CompileNative(std::span<const NativeValue> values) {
  return Compiler(values).Run();
}

#else

bool IsNative(const program::Instruction&) { return false; }
bool IsNativeElement(uint8_t) { return false; }
std::vector<uint8_t> CompileNative(std::span<const NativeValue>) { return {}; }

#endif  // IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
