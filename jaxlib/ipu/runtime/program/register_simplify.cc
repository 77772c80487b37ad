#include "jaxlib/ipu/runtime/program/register_simplify.h"

#include <optional>
#include <span>
#include <utility>

#include "jaxlib/ipu/runtime/program/register_division.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

std::vector<int> CountUses(const RegisterCode& program) {
  std::vector<int> uses(program.code.size());
  for (const Instruction& i : program.code) {
    for (uint16_t value : i.operands()) ++uses[value];
  }
  for (uint16_t value : program.outputs) ++uses[value];
  return uses;
}

class Simplifier {
 public:
  Simplifier(RegisterCode& program, std::vector<bool> uniform)
      : code_(program.code),
        uses_(CountUses(program)),
        uniform_(std::move(uniform)) {}

  void Run() {
    for (Instruction& i : code_) {
      if (Rotate(i)) continue;
      if (!RotateXor(i)) Fuse(i);
    }
  }

 private:
  std::optional<uint64_t> Constant(uint16_t value) const {
    if (code_[value].op != Opcode::kConst) return std::nullopt;
    const uint64_t bits = code_[value].imm;
    return RegisterBytes(code_[value].type) == 4 ? bits & 0xffffffff : bits;
  }

  void Replace(Instruction& i, Instruction with) {
    for (uint16_t value : with.operands()) ++uses_[value];
    for (uint16_t value : i.operands()) Drop(value);
    i = with;
  }

  // Removes one use of a value. Without uses, it no longer uses its operands.
  void Drop(uint16_t value) {
    if (--uses_[value] > 0) return;
    for (uint16_t operand : code_[value].operands()) Drop(operand);
  }

  // x << k | x >> (width - k), with operands in any order and +, ^ or |.
  bool Rotate(Instruction& i) {
    if (IsFloat(i.type) ||
        (i.op != Opcode::kOr && i.op != Opcode::kXor && i.op != Opcode::kAdd)) {
      return false;
    }
    const Instruction* left = &code_[i.values[0]];
    const Instruction* right = &code_[i.values[1]];
    if (left->op != Opcode::kShl) std::swap(left, right);
    if (left->op != Opcode::kShl || right->op != Opcode::kShrLogical ||
        left->values[0] != right->values[0]) {
      return false;
    }
    const auto up = Constant(left->values[1]);
    const auto down = Constant(right->values[1]);
    const uint64_t width = 8 * RegisterBytes(i.type);
    if (!up || !down || *up == 0 || *up >= width || *down != width - *up) {
      return false;
    }
    Replace(i, {kRotateLeft, i.type, left->values[0], 0, 0, *up});
    return true;
  }

  bool RotateXor(Instruction& i) {
    if (i.op != Opcode::kXor) return false;
    uint16_t rotated = i.values[0], other = i.values[1];
    if (!Single(rotated, kRotateLeft)) std::swap(rotated, other);
    if (!Single(rotated, kRotateLeft)) return false;
    const Instruction& r = code_[rotated];
    Replace(i, {kRotateXor, i.type, r.values[0], other, 0, r.imm});
    return true;
  }

  bool Single(uint16_t value, Opcode op) const {
    return code_[value].op == op && uses_[value] == 1;
  }

  // Fuses two additions, subtractions or multiplications into one instruction,
  // with the same roundings.
  void Fuse(Instruction& i) {
    if (i.type == RegisterType::kI64 || i.type == RegisterType::kU64) return;
    if (i.op == Opcode::kAdd) {
      FuseEither(i, Opcode::kMul, kMulAdd) ||
          FuseEither(i, Opcode::kAdd, kAddAdd);
    } else if (i.op == Opcode::kMul) {
      FuseEither(i, Opcode::kMul, kMulMul) ||
          FuseEither(i, Opcode::kAdd, kAddMul) ||
          FuseEither(i, Opcode::kSub, kSubMul);
    } else if (i.op == Opcode::kSub) {
      FuseWith(i, i.values[0], i.values[1], Opcode::kMul, kMulSub) ||
          FuseWith(i, i.values[1], i.values[0], Opcode::kMul, kNegMulAdd);
    }
  }

  bool FuseEither(Instruction& i, Opcode inner, Opcode fused) {
    return FuseWith(i, i.values[0], i.values[1], inner, fused) ||
           FuseWith(i, i.values[1], i.values[0], inner, fused);
  }

  bool FuseWith(Instruction& i, uint16_t value, uint16_t other, Opcode inner,
                Opcode fused) {
    if (!Single(value, inner) || uniform_[value]) return false;
    const Instruction& first = code_[value];
    Replace(i, {fused, i.type, first.values[0], first.values[1], other, 0});
    return true;
  }

  std::vector<Instruction>& code_;
  std::vector<int> uses_;
  std::vector<bool> uniform_;
};

// The operands that an instruction moves to its result, changing at most the
// sign.
std::span<const uint16_t> MovedBy(const Instruction& i) {
  if (i.op == Opcode::kSelect) return i.operands().subspan(1);
  const bool moves =
      i.op == Opcode::kNegate || i.op == Opcode::kAbs || i.op == Opcode::kSign;
  return moves ? i.operands() : std::span<const uint16_t>();
}

bool IsSignallingNan(uint64_t bits) {
  const uint64_t magnitude = bits & 0x7fffffff;
  return magnitude > 0x7f800000 && magnitude < 0x7fc00000;
}

// The dtype whose range an instruction reduces its operand to, or kNone.
DType NarrowedTo(Opcode op) {
  switch (op) {
    case Opcode::kWrapI8:
      return DType::kI8;
    case Opcode::kWrapI16:
      return DType::kI16;
    case Opcode::kWrapU8:
      return DType::kU8;
    case Opcode::kWrapU16:
      return DType::kU16;
    case Opcode::kRoundF16:
      return DType::kF16;
    case Opcode::kRoundBf16:
      return DType::kBF16;
    default:
      return DType::kNone;
  }
}

}  // namespace

std::vector<bool> UniformValues(const RegisterCode& program,
                                const std::vector<bool>& uniform) {
  std::vector<bool> values(program.code.size());
  for (size_t at = 0; at < values.size(); ++at) {
    const Instruction& i = program.code[at];
    values[at] =
        i.op != Opcode::kIota && (i.op != Opcode::kLoad || uniform[i.imm]);
    for (uint16_t value : i.operands())
      values[at] = values[at] && values[value];
  }
  return values;
}

std::vector<bool> MovedValues(const RegisterCode& program,
                              const std::vector<DType>& dtypes) {
  const std::vector<Instruction>& code = program.code;
  std::vector<bool> from(code.size()), to(code.size());
  for (size_t at = 0; at < code.size(); ++at) {
    const Instruction& i = code[at];
    if (i.op == Opcode::kLoad) {
      from[at] = dtypes[i.imm] == DType::kF16 || dtypes[i.imm] == DType::kBF16;
    } else if (i.op == Opcode::kConst) {
      from[at] = i.type == RegisterType::kF32 && IsSignallingNan(i.imm);
    } else {
      // Integers are the bits of a float that a BITCAST makes of them.
      from[at] = !IsFloat(ResultType(i)) || i.op == Opcode::kFromBitsF16 ||
                 i.op == Opcode::kFromBitsBf16;
    }
    for (uint16_t value : MovedBy(i)) from[at] = from[at] || from[value];
  }
  for (uint16_t value : program.outputs) to[value] = true;
  for (size_t at = code.size(); at-- > 0;) {
    const Instruction& i = code[at];
    if (i.op == Opcode::kBitsF16 || i.op == Opcode::kBitsBf16) {
      to[i.values[0]] = true;
    }
    for (uint16_t value : MovedBy(i)) to[value] = to[value] || to[at];
  }
  for (size_t at = 0; at < code.size(); ++at) to[at] = to[at] && from[at];
  return to;
}

void DropDeadCode(RegisterCode& program) {
  std::vector<Instruction>& code = program.code;
  std::vector<bool> live(code.size());
  for (uint16_t value : program.outputs) live[value] = true;
  for (size_t at = code.size(); at-- > 0;) {
    if (!live[at]) continue;
    for (uint16_t value : code[at].operands()) live[value] = true;
  }
  std::vector<uint16_t> renamed(code.size());
  size_t kept = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    if (!live[at]) continue;
    renamed[at] = static_cast<uint16_t>(kept);
    Instruction i = code[at];
    for (uint16_t& value : i.operands()) value = renamed[value];
    code[kept++] = i;
  }
  code.resize(kept);
  for (uint16_t& value : program.outputs) value = renamed[value];
}

void Simplify(RegisterCode& program, const std::vector<bool>& uniform) {
  DivideByMultiplying(program);
  DropDeadCode(program);
  Simplifier(program, UniformValues(program, uniform)).Run();
  DropDeadCode(program);
}

void LeaveRoundingToStores(RegisterCode& program,
                           const std::vector<DType>& stored) {
  for (size_t j = 0; j < stored.size(); ++j) {
    uint16_t& value = program.outputs[j];
    while (stored[j] != DType::kNone &&
           NarrowedTo(program.code[value].op) == stored[j]) {
      value = program.code[value].values[0];
    }
  }
}

}  // namespace ipu::program
