// Division of 32-bit integers by a number that is known.

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

namespace ipu::model::IPU_SIMD_NS {

// The high half of the product of 32-bit lanes: even and odd lanes apart. All
// lanes of b are the same.
void VectorEmitter::MulHigh(RegisterType type, int d, int a, int b) {
  const VectorOp multiply =
      IsSigned(type) ? x86::kMulSigned : x86::kMulUnsigned;
  const auto shift = [&](int which, int to, int from) {
    body_.Vector(x86::kShift64, Of(4), which, to, from, 32);
  };
  if (lanes_ == 1) {  // the first lane, which is even
    Op(multiply, 4, d, a, b);
    return shift(x86::kLogicalRight, d, d);
  }
  const int odd = NewRegister();
  shift(x86::kLogicalRight, odd, a);
  Op(multiply, 4, odd, odd, b);
  Op(multiply, 4, d, a, b);
  shift(x86::kLogicalRight, d, d);
  shift(x86::kLogicalRight, odd, odd);
  shift(x86::kLeft, odd, odd);
  Op(x86::kOr, 4, d, d, odd);
  Free(odd);
}

// As DivideBy of arithmetic_integer.h.
void VectorEmitter::DivideBy(const program::Instruction& i, int d, int a,
                             int reciprocal) {
  const bool is_signed = IsSigned(i.type);
  const auto shift = static_cast<int>(i.imm);
  const int rest = NewRegister();
  MulHigh(i.type, d, a, reciprocal);
  if (is_signed) {
    Add(false, 4, d, d, a);
    if (shift > 0) Shift(x86::kArithmeticRight, 4, d, d, shift);
    Shift(x86::kLogicalRight, 4, rest, a, 31);
    Add(false, 4, d, d, rest);
  } else {
    Sub(false, 4, rest, a, d);
    Shift(x86::kLogicalRight, 4, rest, rest, 1);
    Add(false, 4, d, d, rest);
    if (shift > 0) Shift(x86::kLogicalRight, 4, d, d, shift);
  }
  Free(rest);
}

}  // namespace ipu::model::IPU_SIMD_NS
