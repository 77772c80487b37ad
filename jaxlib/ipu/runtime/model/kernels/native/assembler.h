// An assembler for the subset of x86-64 and AVX2 or AVX-512 that CompileNative
// emits: each variant of the kernels emits its own instruction set.
//
// Appends encoded instructions to a buffer. The code is position-independent.
// Operands are not checked.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ASSEMBLER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

enum class Gpr : uint8_t {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR10,
  kR11,
  kR12,
  kR13,
  kR14,
  kR15,
};  // clang-format off

// [base + index * scale + offset], [base + offset] without an index, or a vector
// register instead of memory.
struct Address {
  Gpr base;
  bool indexed = true;
  uint8_t scale = 1;  // 1, 2, 4 or 8
  Gpr index = Gpr::kRax;
  int32_t offset = 0;  // bytes
  int vector = -1;     // the register, -1: memory
};

// A vector instruction: its opcode map, prefix and opcode.
struct VectorOp {
  enum Map : uint8_t { k0F = 1, k0F38 = 2, k0F3A = 3 };
  enum Prefix : uint8_t { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };
  Map map;
  Prefix prefix;
  uint8_t code;
  bool wide = false;  // EVEX.W or VEX.W
};

// The length of a vector and, with AVX-512, the mask that selects its lanes.
struct Lanes {
  int bytes = 64;      // 64 or more, 32, or at most 16
  int mask = 0;        // k1 to k7; 0: all lanes
  bool zero = false;   // zero the unselected lanes instead of keeping them
};

// An operation on general registers, by its number in the processor's manuals.
enum class Alu : uint8_t { kAdd, kOr, kAnd = 4, kSub, kXor, kCompare };
// A condition of the flags, likewise. Odd ones are the opposite of the even ones
// before them.
enum class Condition : uint8_t {
  kBelow = 2,
  kAboveEqual,
  kEqual,
  kNotEqual,
  kBelowEqual,
  kAbove,
  kNegative,
  kNotNegative,
  kLess = 12,
  kGreaterEqual,
  kLessEqual,
  kGreater,
};
inline Condition Opposite(Condition c) {
  return static_cast<Condition>(static_cast<int>(c) ^ 1);
}

class Assembler {
 public:
  const std::vector<uint8_t>& code() const { return code_; }
  size_t size() const { return code_.size(); }
  void Append(const Assembler& other) {
    for (const size_t end : other.references_) {
      references_.push_back(size() + end);
    }
    for (const SeldomRun& aside : other.asides_) {
      asides_.push_back(
          {size() + aside.jump, size() + aside.back, aside.code});
    }
    Append(other.code_);
  }
  void Append(const std::vector<uint8_t>& code) {
    code_.insert(code_.end(), code.begin(), code.end());
  }

  void Bytes(std::initializer_list<int> bytes) {
    for (int b : bytes) code_.push_back(static_cast<uint8_t>(b));
  }
  template <typename T>
  void Immediate(T value) {
    uint8_t bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    code_.insert(code_.end(), bytes, bytes + sizeof value);
  }

  // Vector instructions. reg, vvvv and rm are the operands in the notation of
  // the processor manuals; vvvv is 0 if unused.
  void Vector(VectorOp op, Lanes lanes, int reg, int vvvv, int rm) {
    Prefix(op, lanes, reg, vvvv, rm >> 3 & 1, rm >> 4 & 1);
    code_.push_back(static_cast<uint8_t>(0xc0 | (reg & 7) << 3 | (rm & 7)));
  }
  void Vector(VectorOp op, Lanes lanes, int reg, int vvvv, int rm, int imm) {
    Vector(op, lanes, reg, vvvv, rm);
    code_.push_back(static_cast<uint8_t>(imm));
  }
  void Vector(VectorOp op, Lanes lanes, int reg, int vvvv, Address at) {
    if (at.vector >= 0) return Vector(op, lanes, reg, vvvv, at.vector);
    Prefix(op, lanes, reg, vvvv, Number(at.base) >> 3, IndexBit(at));
    Memory(reg, at);
  }
  void Vector(VectorOp op, Lanes lanes, int reg, int vvvv, Address at,
              int imm) {
    Vector(op, lanes, reg, vvvv, at);
    code_.push_back(static_cast<uint8_t>(imm));
  }

  // Constants, which the code reads where PlaceConstants has put them: behind
  // it. They are named by their offsets among each other.
  void VectorConstant(VectorOp op, Lanes lanes, int reg, int vvvv,
                      size_t constant) {
    Prefix(op, lanes, reg, vvvv, 0, 0);
    Refer(reg, constant);
  }
  void AddressOf(Gpr to, size_t constant) {
    Bytes({0x48 | (Number(to) >> 3) << 2, 0x8d});
    Refer(Number(to), constant);
  }
  void PlaceConstants(const std::vector<uint8_t>& constants) {
    constexpr size_t kLine = 64;
    if (references_.empty()) return;
    code_.resize((size() + kLine - 1) / kLine * kLine);
    for (const size_t end : references_) {
      int32_t offset;
      std::memcpy(&offset, code_.data() + end - 4, 4);
      Patch(end, size() + offset);
    }
    code_.insert(code_.end(), constants.begin(), constants.end());
  }

  // Code that is seldom run: `jump` leads to it, and it leads back to here. It
  // has no references. PlaceAside puts all of it behind the rest.
  void Aside(size_t jump, const Assembler& code) {
    asides_.push_back({jump, size(), code.code()});
  }
  void PlaceAside() {
    for (const auto& [jump, back, code] : asides_) {
      Land(jump);
      Append(code);
      Patch(JumpAlways(), back);
    }
    asides_.clear();
  }

  // General-purpose registers, 64 bits.
  void Load(Gpr to, Gpr base, int32_t offset) {  // to = [base + offset]
    Rex(Number(to), Number(base));
    Bytes({0x8b, 0x80 | (Number(to) & 7) << 3 | (Number(base) & 7)});
    if ((Number(base) & 7) == 4) Bytes({0x24});
    Immediate(offset);
  }
  // to = the one or two bytes at an address
  void LoadSmall(Gpr to, int bytes, Address at, bool is_signed = false) {
    const int t = Number(to);
    Bytes({0x40 | (t >> 3) << 2 | IndexBit(at) << 1 | Number(at.base) >> 3,
           0x0f, (is_signed ? 0xbe : 0xb6) + (bytes == 2)});
    Memory(t, at);
  }
  void CompareByte(Address at, uint8_t value) {
    Bytes({0x40 | IndexBit(at) << 1 | Number(at.base) >> 3, 0x80});
    Memory(7, at);
    Bytes({value});
  }
  void AddTo(Address at, Gpr from) {  // the 64 bits at an address += from
    const int f = Number(from);
    Bytes({0x48 | (f >> 3) << 2 | IndexBit(at) << 1 | Number(at.base) >> 3,
           0x01});
    Memory(f, at);
  }
  void LoadEntry() {  // rcx = [rcx + rdx * 8]
    Bytes({0x48, 0x8b, 0x0c, 0xd1});
  }
  void Move(Gpr to, uint64_t value) {
    Rex(0, Number(to));
    Bytes({0xb8 | (Number(to) & 7)});
    Immediate(value);
  }
  void Move(Gpr to, Gpr from) { Arithmetic(0x89, to, from); }
  void Add(Gpr to, Gpr from) { Arithmetic(0x01, to, from); }
  void Compare(Gpr a, Gpr b) { Arithmetic(0x39, a, b); }
  void Subtract(Gpr to, Gpr from) { Arithmetic(0x29, to, from); }
  void And(Gpr to, int32_t value) { Group(4, to, value); }
  void Add(Gpr to, int32_t value) { Group(0, to, value); }
  void AddScaled(Gpr to, Gpr index, int scale) {  // to += index * scale
    const int t = Number(to), i = Number(index);
    Bytes({0x48 | (t >> 3) << 2 | (i >> 3) << 1 | t >> 3, 0x8d,
           0x44 | (t & 7) << 3,
           __builtin_ctz(scale) << 6 | (i & 7) << 3 | (t & 7), 0});
  }
  // rax, rest rdx <- rax / by
  void Divide(Gpr by) {
    Zero(Gpr::kRdx);
    Rex(0, Number(by));
    Bytes({0xf7, 0xf0 | (Number(by) & 7)});
  }
  // The lowest n bits, all if there are fewer.
  void LowBits(Gpr to, Gpr n) {  // BMI2: to = -1, then bzhi
    Move(to, ~uint64_t{0});
    Bytes({0xc4, 0xe2, 0x80 | (~Number(n) & 15) << 3,  // both below r8
           0xf5, 0xc0 | Number(to) << 3 | Number(to)});
  }
  void Zero(Gpr r) { Arithmetic(0x31, r, r); }
  void ShiftLeft(Gpr r, int by) {
    Rex(0, Number(r));
    Bytes({0xc1, 0xe0 | (Number(r) & 7), by});
  }
  void ShiftRight(Gpr r, int by) {  // logically
    Rex(0, Number(r));
    Bytes({0xc1, 0xe8 | (Number(r) & 7), by});
  }
  void ExtendSigned(Gpr to, Gpr from) {  // to = the lowest 32 bits of from
    const int t = Number(to), f = Number(from);
    Rex(t, f);
    Bytes({0x63, 0xc0 | (t & 7) << 3 | (f & 7)});
  }
  void Multiply(Gpr to, Gpr by) {  // to *= by
    const int t = Number(to), b = Number(by);
    Rex(t, b);
    Bytes({0x0f, 0xaf, 0xc0 | (t & 7) << 3 | (b & 7)});
  }
  void Multiply(Gpr to, Gpr from, int32_t by) {  // to = from * by
    const int t = Number(to), f = Number(from);
    Rex(t, f);
    Bytes({0x69, 0xc0 | (t & 7) << 3 | (f & 7)});
    Immediate(by);
  }
  void TestSelf(Gpr r) { Arithmetic(0x85, r, r); }
  void Not(Gpr r) {
    Rex(0, Number(r));
    Bytes({0xf7, 0xd0 | (Number(r) & 7)});
  }
  void SubtractOne(Gpr r) {  // keeps the flags
    Rex(Number(r), Number(r));
    Bytes({0x8d, 0x40 | (Number(r) & 7) << 3 | (Number(r) & 7), 0xff});
  }
  void Push(Gpr r) {
    if (Number(r) >= 8) Bytes({0x41});
    Bytes({0x50 | (Number(r) & 7)});
  }
  void Pop(Gpr r) {
    if (Number(r) >= 8) Bytes({0x41});
    Bytes({0x58 | (Number(r) & 7)});
  }

  // General-purpose registers, 32 bits: the upper half of a result is 0. Moves,
  // loads, stores, LoadAddress32 and SetIf keep the flags.
  void Move32(Gpr to, int32_t value) {
    Bytes({0x40 | Number(to) >> 3, 0xb8 | (Number(to) & 7)});
    Immediate(value);
  }
  void Move32(Gpr to, Gpr from) { Arithmetic32(0x89, to, from); }
  void Load32(Gpr to, Address at) { Access(0x8b, Number(to), at); }
  void Store(int bytes, Address at, Gpr from) {  // the lowest 1, 2 or 4
    if (bytes == 2) Bytes({0x66});
    Access(bytes == 1 ? 0x88 : 0x89, Number(from), at);
  }
  void LoadAddress32(Gpr to, Address at) { Access(0x8d, Number(to), at); }
  void Compute32(Alu op, Gpr to, Gpr by) {
    Arithmetic32(static_cast<int>(op) * 8 + 1, to, by);
  }
  void Compute32(Alu op, Gpr to, int32_t by) {
    if (op == Alu::kCompare && by == 0) return Test32(to, to);
    const bool is_short = by == static_cast<int8_t>(by);
    Bytes({0x40 | Number(to) >> 3, is_short ? 0x83 : 0x81,
           0xc0 | static_cast<int>(op) << 3 | (Number(to) & 7)});
    if (is_short) return Bytes({by});
    Immediate(by);
  }
  void Test32(Gpr a, Gpr b) { Arithmetic32(0x85, a, b); }
  void Multiply32(Gpr to, Gpr by) { Extended(0xaf, to, by); }
  void Multiply32(Gpr r, int32_t by) {
    const int n = Number(r);
    Bytes({0x40 | (n >> 3) << 2 | n >> 3, 0x69,
           0xc0 | (n & 7) << 3 | (n & 7)});
    Immediate(by);
  }
  void Negate32(Gpr r) { Unary32(0xf7, 3, r); }
  void Not32(Gpr r) { Unary32(0xf7, 2, r); }
  // `which`: 4 left, 5 logically right, 7 arithmetically right
  void Shift32(int which, Gpr r, int by) {
    Unary32(0xc1, which, r);
    Bytes({by});
  }
  // to <- the lowest 1 or 2 bytes
  void Extend32(bool is_signed, int bytes, Gpr to, Gpr from) {
    Extended((is_signed ? 0xbe : 0xb6) + (bytes == 2), to, from);
  }
  void Move32If(Condition c, Gpr to, Gpr from) {
    Extended(0x40 | static_cast<int>(c), to, from);
  }
  void SetIf(Condition c, Gpr to) {  // to = c ? 1 : 0
    Bytes({0x40 | Number(to) >> 3, 0x0f, 0x90 | static_cast<int>(c),
           0xc0 | (Number(to) & 7)});
    Extend32(false, 1, to, to);
  }
  void SetIf(Condition c, Address at) {  // a byte
    Bytes({0x40 | IndexBit(at) << 1 | Number(at.base) >> 3, 0x0f,
           0x90 | static_cast<int>(c)});
    Memory(0, at);
  }

  // Mask registers (AVX-512).
  void MoveToMask(int mask, Gpr from) {  // one below r8
    Bytes({0xc4, 0xe1, 0xfb, 0x92, 0xc0 | mask << 3 | Number(from)});
  }
  void LoadMask(int mask) {  // mask <- [rcx + rdx * 8]
    Bytes({0xc4, 0xe1, 0xf8, 0x90, 0x04 | mask << 3, 0xd1});
  }

  // Conditional jumps. Jump returns a handle for Land, which sets its target;
  // JumpBack takes the target.
  size_t Jump(Condition c) {
    Bytes({0x0f, 0x80 | static_cast<int>(c)});
    Immediate(int32_t{0});
    return size();
  }
  size_t JumpAlways() {
    Bytes({0xe9});
    Immediate(int32_t{0});
    return size();
  }
  void JumpBack(Condition c, size_t target) {
    const size_t after = Jump(c);
    Patch(after, target);
  }
  void Land(size_t jump) { Patch(jump, size()); }

 private:
  static int Number(Gpr r) { return static_cast<int>(r); }
  void Rex(int reg, int rm) { Bytes({0x48 | (reg >> 3) << 2 | rm >> 3}); }
  void Arithmetic(int opcode, Gpr to, Gpr from) {
    const int t = Number(to), f = Number(from);
    Rex(f, t);
    Bytes({opcode, 0xc0 | (f & 7) << 3 | (t & 7)});
  }
  void Arithmetic32(int opcode, Gpr to, Gpr from) {
    const int t = Number(to), f = Number(from);
    Bytes({0x40 | (f >> 3) << 2 | t >> 3, opcode,
           0xc0 | (f & 7) << 3 | (t & 7)});
  }
  void Extended(int opcode, Gpr to, Gpr from) {
    const int t = Number(to), f = Number(from);
    Bytes({0x40 | (t >> 3) << 2 | f >> 3, 0x0f, opcode,
           0xc0 | (t & 7) << 3 | (f & 7)});
  }
  void Unary32(int opcode, int number, Gpr r) {
    Bytes({0x40 | Number(r) >> 3, opcode,
           0xc0 | number << 3 | (Number(r) & 7)});
  }
  void Access(int opcode, int reg, Address at) {
    Bytes({0x40 | (reg >> 3) << 2 | IndexBit(at) << 1 | Number(at.base) >> 3,
           opcode});
    Memory(reg, at);
  }
  void Group(int number, Gpr to, int32_t value) {
    Rex(0, Number(to));
    Bytes({0x81, 0xc0 | number << 3 | (Number(to) & 7)});
    Immediate(value);
  }
  void Patch(size_t after, size_t target) {
    const auto distance = static_cast<int32_t>(static_cast<int64_t>(target) -
                                               static_cast<int64_t>(after));
    std::memcpy(code_.data() + after - 4, &distance, 4);
  }
  static int IndexBit(Address at) {
    return at.indexed ? Number(at.index) >> 3 : 0;
  }
  // ModRM, SIB and offset of an operand in memory. Those of vector instructions
  // scale an offset of 8 bits, so there is only 0 of them.
  void Memory(int reg, Address at) {
    const int scale = __builtin_ctz(at.scale);
    const int index = at.indexed ? Number(at.index) & 7 : 4;
    const bool far = at.offset != 0;
    Bytes({(far ? 0x84 : 0x44) | (reg & 7) << 3,
           scale << 6 | index << 3 | (Number(at.base) & 7)});
    if (far) {
      Immediate(at.offset);
    } else {
      Bytes({0});
    }
  }
  void Refer(int reg, size_t constant) {
    Bytes({0x05 | (reg & 7) << 3});
    Immediate(static_cast<int32_t>(constant));
    references_.push_back(size());
  }
  // `b` and `x` are the high bits of rm. Most bits are stored inverted.
  void Prefix(VectorOp op, Lanes lanes, int reg, int vvvv, int b, int x) {
#if IPU_AVX512
    Evex(op, lanes, reg, vvvv, b, x);
#else
    Vex(op, lanes, reg, vvvv, b, x);
#endif
  }
  void Vex(VectorOp op, Lanes lanes, int reg, int vvvv, int b, int x) {
    Bytes({0xc4, op.map | !(reg >> 3 & 1) << 7 | !x << 6 | !b << 5,
           op.wide << 7 | (~vvvv & 15) << 3 | (lanes.bytes >= 32) << 2 |
               op.prefix,
           op.code});
  }
  void Evex(VectorOp op, Lanes lanes, int reg, int vvvv, int b, int x) {
    const int length = lanes.bytes >= 64 ? 2 : lanes.bytes == 32 ? 1 : 0;
    Bytes({0x62,
           op.map | !(reg >> 3 & 1) << 7 | !x << 6 | !b << 5 |
               !(reg >> 4 & 1) << 4,
           op.wide << 7 | (~vvvv & 15) << 3 | 4 | op.prefix,
           lanes.zero << 7 | length << 5 | !(vvvv >> 4 & 1) << 3 | lanes.mask,
           op.code});
  }

  struct SeldomRun {
    size_t jump, back;
    std::vector<uint8_t> code;
  };

  std::vector<uint8_t> code_;
  std::vector<SeldomRun> asides_;
  std::vector<size_t> references_;  // ends of instructions that read constants
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ASSEMBLER_H_
