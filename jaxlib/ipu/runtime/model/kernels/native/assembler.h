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

// [base + index * scale + offset], without an index [base + offset], or a vector
// register instead of memory.
struct Address {
  Gpr base;
  bool indexed = true;  // the index is rax
  uint8_t scale = 1;    // 1, 2, 4 or 8
  int32_t offset = 0;   // bytes
  int vector = -1;      // the register, -1: memory
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

class Assembler {
 public:
  const std::vector<uint8_t>& code() const { return code_; }
  size_t size() const { return code_.size(); }
  void Append(const Assembler& other) {
    for (const size_t end : other.references_) {
      references_.push_back(size() + end);
    }
    code_.insert(code_.end(), other.code_.begin(), other.code_.end());
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
    const int base = Number(at.base);
    Prefix(op, lanes, reg, vvvv, base >> 3, 0);
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

  // General-purpose registers, 64 bits.
  void Load(Gpr to, Gpr base, int32_t offset) {  // to = [base + offset]
    Rex(Number(to), Number(base));
    Bytes({0x8b, 0x80 | (Number(to) & 7) << 3 | (Number(base) & 7)});
    if ((Number(base) & 7) == 4) Bytes({0x24});
    Immediate(offset);
  }
  // to = the one or two bytes at an address
  void LoadSmall(Gpr to, int bytes, Address at) {
    const int t = Number(to);
    Bytes({0x40 | (t >> 3) << 2 | Number(at.base) >> 3, 0x0f,
           bytes == 1 ? 0xb6 : 0xb7});
    Memory(t, at);
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
  void Multiply(Gpr to, int32_t by) {
    Rex(Number(to), Number(to));
    Bytes({0x69, 0xc0 | (Number(to) & 7) << 3 | (Number(to) & 7)});
    Immediate(by);
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
  void Push(Gpr r) {
    if (Number(r) >= 8) Bytes({0x41});
    Bytes({0x50 | (Number(r) & 7)});
  }
  void Pop(Gpr r) {
    if (Number(r) >= 8) Bytes({0x41});
    Bytes({0x58 | (Number(r) & 7)});
  }

  // Mask registers (AVX-512).
  void MoveToMask(int mask, Gpr from) {  // one below r8
    Bytes({0xc4, 0xe1, 0xfb, 0x92, 0xc0 | mask << 3 | Number(from)});
  }
  void LoadMask(int mask) {  // mask <- [rcx + rdx * 8]
    Bytes({0xc4, 0xe1, 0xf8, 0x90, 0x04 | mask << 3, 0xd1});
  }

  // Conditional jumps: 0x82 below, 0x84 equal, 0x85 not equal. Jump returns a
  // handle for Land, which sets its target; JumpBack takes the target.
  size_t Jump(int condition) {
    Bytes({0x0f, condition});
    Immediate(int32_t{0});
    return size();
  }
  size_t JumpAlways() {
    Bytes({0xe9});
    Immediate(int32_t{0});
    return size();
  }
  void JumpBack(int condition, size_t target) {
    const size_t after = Jump(condition);
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
  // ModRM and SIB of an operand in memory. Short offsets would count vectors.
  void Memory(int reg, Address at) {
    const int scale = __builtin_ctz(at.scale);
    const int index = at.indexed ? 0 : 4;
    Bytes({(at.offset == 0 ? 0x44 : 0x84) | (reg & 7) << 3,
           scale << 6 | index << 3 | (Number(at.base) & 7)});
    if (at.offset == 0) return Bytes({0});
    Immediate(at.offset);
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

  std::vector<uint8_t> code_;
  std::vector<size_t> references_;  // ends of instructions that read constants
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ASSEMBLER_H_
