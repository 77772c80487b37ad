// Emits the AVX-512 instructions for each instruction of a register program,
// and allocates the vector registers they use.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_

#include <cstdint>
#include <map>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// Mask registers: the tail of a block, a temporary within one instruction, and
// comparisons whose SELECT is still to come.
inline constexpr int kTailMask = 1;
inline constexpr int kMask = 2;
inline constexpr int kFirstFlags = 3, kMasks = 8;

// Emits the body of a loop and the loop-invariant code before it.
class VectorEmitter {
 public:
  // `lanes`: elements per vector of the widest registers in use.
  explicit VectorEmitter(int lanes) : lanes_(lanes) {}

  int lanes() const { return lanes_; }
  // True if the registers did not suffice; then the code must not be used.
  bool failed() const { return failed_; }
  void Fail() { failed_ = true; }
  Assembler& body() { return body_; }
  Assembler& hoisted() { return hoisted_; }

  // A vector of 4- or 8-byte registers.
  Lanes Of(uint32_t width, int mask = 0, bool zero = false) const {
    return {lanes_ * static_cast<int>(width), mask, zero};
  }

  int NewRegister();
  void Free(int reg) { used_ &= ~(uint32_t{1} << reg); }
  void FreeAll() { used_ = 0; }
  // A register for a loop-invariant value; -1 if none is left.
  int NewHoisted();
  // A vector with a number in all lanes.
  int Number(uint32_t width, uint64_t bits);

  // d <- the instruction applied to registers a, b and c, none of which may be
  // d. Supports everything that IsNative does except comparisons and SELECT.
  void Compute(const program::Instruction& i, int d, int a, int b, int c);
  void Compare(const program::Instruction& i, int mask, int a, int b);
  // mask <- lanes in which flags are not 0
  void Test(int mask, int flags);
  // d <- mask ? 1 : 0
  void Flags(int d, int mask);
  // d <- mask ? yes : no
  void Blend(uint32_t width, int mask, int d, int no, int yes);

  void Shift(int which, uint32_t width, int d, int a, int by);
  void Copy(int d, int a) { OpI(x86::kMove, 4, d, 0, a); }
  // The same conversions as in half.h, of 16 bits in lanes of 32. Unless
  // `moved`, a NaN becomes quiet, which is faster.
  void Bf16Bits(int d, int x, bool moved);
  void F16Bits(int d, int x);
  void FromF16(int d, int bits);

 private:
  using RegisterType = program::RegisterType;

  void Op(VectorOp op, uint32_t width, int d, int a, int b) {
    body_.Vector(op, Of(width), d, a, b);
  }
  // Integers and floats of either width.
  void OpI(VectorOp op, uint32_t width, int d, int a, int b) {
    Op(x86::Wide(op, width == 8), width, d, a, b);
  }
  void OpF(uint8_t code, uint32_t width, int d, int a, int b) {
    Op(x86::Float(code, width == 8), width, d, a, b);
  }
  void CompareF(int mask, uint32_t width, int a, int b, int how);
  // d <- d with the bits of `from` that `which` selects, in lanes of kMask
  void Insert(int d, int from, uint32_t which);
  int Zero(uint32_t width) { return Number(width, 0); }
  int One(uint32_t width, bool is_float);
  int SignBit(uint32_t width);
  void Add(bool is_float, uint32_t w, int d, int a, int b);
  void Sub(bool is_float, uint32_t w, int d, int a, int b);
  void Mul(bool is_float, uint32_t w, int d, int a, int b);
  void MulHigh(RegisterType type, int d, int a, int b);
  void DivideBy(const program::Instruction& i, int d, int a, int reciprocal);
  void ExtremeF(bool max, uint32_t w, int d, int a, int b);
  void Extreme(bool max, RegisterType type, int d, int a, int b);
  void SignF(uint32_t w, int d, int a);
  void Round(uint32_t w, int d, int a, int how);
  void Convert(RegisterType from, RegisterType to, int d, int a);
  bool ComputeFused(const program::Instruction& i, int d, int a, int b, int c);

  const int lanes_;
  bool failed_ = false;
  Assembler hoisted_;
  Assembler body_;
  std::map<std::pair<uint32_t, uint64_t>, int> numbers_;
  int top_ = 32;   // registers from here on hold loop-invariant values
  int peak_ = -1;  // the highest other register used so far
  uint32_t used_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_
