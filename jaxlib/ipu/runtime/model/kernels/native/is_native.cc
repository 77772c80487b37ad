#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

bool IsNative(const program::Instruction& i) {
  using program::Opcode;
  using program::RegisterType;
  using enum RegisterType;
  if (i.op == program::kRotateLeft || i.op == program::kRotateXor ||
      (i.op >= program::kMulAdd && i.op <= program::kSubMul)) {
    return true;
  }
  if (i.op == program::kDivideBy || i.op == program::kRemainderBy) {
    return program::RegisterBytes(i.type) == 4;
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
      if (from == kF32 && i.type == kU32) return IPU_AVX512;
      return from != kF64 || i.type == kF32;
    }
    case Opcode::kDiv:
      return program::IsFloat(i.type);
    case Opcode::kExp:
    case Opcode::kLogistic:
      // With AVX2 there is no larger one of two 64-bit integers.
      return IPU_AVX512 || i.type == kF32;
    case Opcode::kWrapI8:
    case Opcode::kWrapI16:
    case Opcode::kWrapU8:
    case Opcode::kWrapU16:
    case Opcode::kRoundF16:
    case Opcode::kRoundBf16:
    case Opcode::kBitsF16:
    case Opcode::kBitsBf16:
    case Opcode::kFromBitsF16:
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
    case Opcode::kIsFinite:
    case Opcode::kEq:
    case Opcode::kNe:
    case Opcode::kLt:
    case Opcode::kLe:
    case Opcode::kGt:
    case Opcode::kGe:
    case Opcode::kSelect:
    case Opcode::kClamp:
    case Opcode::kPopcnt:
    case Opcode::kClz:
      return true;
    default:
      return false;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
