#include <algorithm>

#include "jaxlib/ipu/runtime/model/kernels/native/word_division.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

// Whether the low bits of the result depend only on as many bits of operand k.
bool IsModular(Opcode op, int k) {
  switch (OpNumber(op)) {
    case OpNumber(Opcode::kConvert):
    case OpNumber(Opcode::kWrapI16):
    case OpNumber(Opcode::kWrapU16):
    case OpNumber(Opcode::kNegate):
    case OpNumber(Opcode::kNot):
    case OpNumber(Opcode::kAdd):
    case OpNumber(Opcode::kSub):
    case OpNumber(Opcode::kMul):
    case OpNumber(Opcode::kAnd):
    case OpNumber(Opcode::kOr):
    case OpNumber(Opcode::kXor):
    case OpNumber(program::kMulAdd):
    case OpNumber(program::kMulSub):
    case OpNumber(program::kNegMulAdd):
    case OpNumber(program::kMulMul):
    case OpNumber(program::kAddAdd):
    case OpNumber(program::kAddMul):
    case OpNumber(program::kSubMul):
      return true;
    case OpNumber(Opcode::kShl):
      return k == 0;
    case OpNumber(Opcode::kSelect):
      return k > 0;
    default:
      return false;
  }
}

bool IsWrapToByte(Opcode op) {
  return op == Opcode::kWrapI8 || op == Opcode::kWrapU8;
}

bool IsShiftBy(Opcode op, int k) {
  return k == 1 && (op == Opcode::kShl || op == Opcode::kShrLogical ||
                    op == Opcode::kShrArithmetic);
}

bool IsDivision(Opcode op) {
  return OpNumber(op) == OpNumber(program::kDivideBy) ||
         OpNumber(op) == OpNumber(program::kRemainderBy);
}

// Whether bytes determine what an instruction reads. Its operands are in lanes
// that are all signed or all unsigned. A wrap to a byte only reads the low
// bits.
bool FitsBytes(const NativeValue& v, const std::vector<Range>& ranges) {
  const Opcode op = v.instruction.op;
  if (IsWrapToByte(op)) return true;
  Range all{0, 0};
  for (int k = 0; k < 3; ++k) {
    if (v.operands[k] < 0 || IsModular(op, k) || IsShiftBy(op, k)) continue;
    if (IsDivision(op) && k > 0) continue;
    const Range r = As(v.instruction.type, ranges[v.operands[k]]);
    all = {std::min(all.least, r.least), std::max(all.most, r.most)};
  }
  return all.Fits(1);
}

Range Dividend(const NativeValue& v, const std::vector<Range>& ranges) {
  return As(v.instruction.type, ranges[v.operands[0]]);
}

}  // namespace

bool BytesSuffice(std::span<const NativeValue> values,
                  const std::vector<Range>& ranges) {
  for (size_t at = 0; at < values.size(); ++at) {
    const NativeValue& v = values[at];
    if (v.kind == NativeValue::kElements && ItemSize(v.source->dtype) > 1) {
      return false;
    }
    if (v.kind != NativeValue::kComputed) continue;
    if (!FitsBytes(v, ranges)) return false;
    if (IsDivision(v.instruction.op) &&
        !ByteReciprocalOf(*Divisor(values, v), Dividend(v, ranges))) {
      return false;
    }
    if (v.stored < 0) continue;
    if (ItemSize(v.stored_dtype) > 1) return false;
    if (v.stored_dtype == DType::kBool && !ranges[at].Fits(1)) return false;
  }
  return true;
}

std::vector<bool> NeedWords(std::span<const NativeValue> values,
                            const std::vector<Range>& ranges) {
  std::vector<bool> needed(values.size());
  for (size_t at = values.size(); at-- > 0;) {
    const NativeValue& v = values[at];
    if (v.kind != NativeValue::kComputed) continue;
    if (v.stored >= 0) {
      needed[at] = needed[at] || v.stored_dtype == DType::kBool ||
                   ItemSize(v.stored_dtype) > 1;
    }
    const Opcode op = v.instruction.op;
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] < 0) continue;
      const auto operand = static_cast<size_t>(v.operands[k]);
      bool word = !IsModular(op, k) || needed[at];
      // A wrap that changes nothing is a copy.
      if (IsWrapToByte(op)) word = needed[at] && ranges[at] == ranges[operand];
      needed[operand] = needed[operand] || word;
    }
  }
  return needed;
}

}  // namespace ipu::model::IPU_SIMD_NS
