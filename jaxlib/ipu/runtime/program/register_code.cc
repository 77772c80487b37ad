#include "jaxlib/ipu/runtime/program/register_code.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::program {
namespace {

constexpr size_t kInstructionBytes = 16;

constexpr const char* kTypeNames[] = {"F32", "F64", "I32", "U32", "I64", "U64"};

constexpr bool Between(Opcode op, Opcode first, Opcode last) {
  return first <= op && op <= last;
}

bool Known(Opcode op) {
  return Between(op, Opcode::kLoad, Opcode::kFromBitsBf16) ||
         Between(op, Opcode::kNegate, Opcode::kClz) ||
         Between(op, Opcode::kAdd, Opcode::kShrArithmetic) ||
         Between(op, Opcode::kEq, Opcode::kGe) ||
         Between(op, Opcode::kSelect, Opcode::kClamp);
}

// What an opcode works on.
bool TypeFits(Opcode op, RegisterType type) {
  switch (op) {
    case Opcode::kNot:
    case Opcode::kPopcnt:
    case Opcode::kClz:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kShl:
    case Opcode::kShrLogical:
    case Opcode::kShrArithmetic:
      return !IsFloat(type);
    case Opcode::kWrapI8:
    case Opcode::kWrapI16:
      return type == RegisterType::kI32;
    case Opcode::kWrapU8:
    case Opcode::kWrapU16:
      return type == RegisterType::kU32;
    case Opcode::kRoundF16:
    case Opcode::kRoundBf16:
      return type == RegisterType::kF32;
    case Opcode::kIsFinite:
    case Opcode::kAtan2:
      return IsFloat(type);
    default:
      return !Between(op, Opcode::kFloor, Opcode::kLogistic) || IsFloat(type);
  }
}

// The types that an instruction takes as a, b, c.
std::array<RegisterType, 3> OperandTypes(const Instruction& i) {
  switch (i.op) {
    case Opcode::kConvert:
    case Opcode::kBitcast:
      return {static_cast<RegisterType>(i.b)};
    case Opcode::kBitsF16:
    case Opcode::kBitsBf16:
      return {RegisterType::kF32};
    case Opcode::kFromBitsF16:
    case Opcode::kFromBitsBf16:
      return {RegisterType::kU32};
    case Opcode::kSelect:
      return {RegisterType::kU32, i.type, i.type};
    default:
      return {i.type, i.type, i.type};
  }
}

Status Malformed(size_t at, const std::string& what) {
  return DataLoss("malformed register program: instruction " +
                  std::to_string(at) + " " + what);
}

Status Check(const std::vector<Instruction>& code, size_t at,
             size_t num_operands, size_t rank) {
  const Instruction& i = code[at];
  if (!Known(i.op)) {
    return Malformed(
        at, "has the unknown opcode " + std::to_string(static_cast<int>(i.op)));
  }
  if (i.type > RegisterType::kU64) {
    return Malformed(
        at, "has the unknown type " + std::to_string(static_cast<int>(i.type)));
  }
  const std::string name = "(opcode " + std::to_string(static_cast<int>(i.op)) +
                           ", " + kTypeNames[static_cast<int>(i.type)] + ")";
  if (!TypeFits(i.op, i.type)) {
    return Malformed(at, name + " does not exist for its type");
  }
  if (i.op == Opcode::kLoad && i.imm >= num_operands) {
    return Malformed(at, name + " loads operand " + std::to_string(i.imm) +
                             " of " + std::to_string(num_operands));
  }
  if (i.op == Opcode::kIota && i.imm >= rank) {
    return Malformed(at, name + " counts along dimension " +
                             std::to_string(i.imm) + " of " +
                             std::to_string(rank));
  }
  if (i.op == Opcode::kConvert || i.op == Opcode::kBitcast) {
    if (i.b > static_cast<uint16_t>(RegisterType::kU64)) {
      return Malformed(at,
                       name + " takes the unknown type " + std::to_string(i.b));
    }
    if (i.op == Opcode::kBitcast &&
        RegisterBytes(i.type) != RegisterBytes(static_cast<RegisterType>(i.b)))
      return Malformed(at, name + " changes the width of its operand");
  }
  const uint16_t operands[] = {i.a, i.b, i.c};
  const auto types = OperandTypes(i);
  for (int k = 0; k < NumOperands(i.op); ++k) {
    if (operands[k] >= at) {
      return Malformed(at, name + " uses value " + std::to_string(operands[k]) +
                               ", which is not there yet");
    }
    const RegisterType found = ResultType(code[operands[k]]);
    if (found != types[k]) {
      return Malformed(at, name + " takes " +
                               kTypeNames[static_cast<int>(types[k])] +
                               " but value " + std::to_string(operands[k]) +
                               " is " + kTypeNames[static_cast<int>(found)]);
    }
  }
  return Status();
}

// --- Simplify
// -----------------------------------------------------------------

std::vector<int> CountUses(const RegisterCode& program) {
  std::vector<int> uses(program.code.size());
  for (const Instruction& i : program.code) {
    const uint16_t operands[] = {i.a, i.b, i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) ++uses[operands[k]];
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
    const uint16_t operands[] = {with.a, with.b, with.c};
    for (int k = 0; k < NumOperands(with.op); ++k) ++uses_[operands[k]];
    const uint16_t old_operands[] = {i.a, i.b, i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) Drop(old_operands[k]);
    i = with;
  }

  // One use less; what has none left no longer uses its operands either.
  void Drop(uint16_t value) {
    if (--uses_[value] > 0) return;
    const Instruction& i = code_[value];
    const uint16_t operands[] = {i.a, i.b, i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) Drop(operands[k]);
  }

  // x << k | x >> (width - k), in any order, with + or ^ for |.
  bool Rotate(Instruction& i) {
    if (IsFloat(i.type) ||
        (i.op != Opcode::kOr && i.op != Opcode::kXor && i.op != Opcode::kAdd)) {
      return false;
    }
    const Instruction* left = &code_[i.a];
    const Instruction* right = &code_[i.b];
    if (left->op != Opcode::kShl) std::swap(left, right);
    if (left->op != Opcode::kShl || right->op != Opcode::kShrLogical ||
        left->a != right->a) {
      return false;
    }
    const auto up = Constant(left->b);
    const auto down = Constant(right->b);
    const uint64_t width = 8 * RegisterBytes(i.type);
    if (!up || !down || *up == 0 || *up >= width || *down != width - *up) {
      return false;
    }
    Replace(i, {kRotateLeft, i.type, left->a, 0, 0, *up});
    return true;
  }

  bool RotateXor(Instruction& i) {
    if (i.op != Opcode::kXor) return false;
    uint16_t rotated = i.a, other = i.b;
    if (!Single(rotated, kRotateLeft)) std::swap(rotated, other);
    if (!Single(rotated, kRotateLeft)) return false;
    const Instruction& r = code_[rotated];
    Replace(i, {kRotateXor, i.type, r.a, other, 0, r.imm});
    return true;
  }

  bool Single(uint16_t value, Opcode op) const {
    return code_[value].op == op && uses_[value] == 1;
  }

  // Two additions, subtractions or multiplications as one. Nothing changes in
  // how they round.
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
      FuseWith(i, i.a, i.b, Opcode::kMul, kMulSub) ||
          FuseWith(i, i.b, i.a, Opcode::kMul, kNegMulAdd);
    }
  }

  bool FuseEither(Instruction& i, Opcode inner, Opcode fused) {
    return FuseWith(i, i.a, i.b, inner, fused) ||
           FuseWith(i, i.b, i.a, inner, fused);
  }

  bool FuseWith(Instruction& i, uint16_t value, uint16_t other, Opcode inner,
                Opcode fused) {
    if (!Single(value, inner) || uniform_[value]) return false;
    const Instruction& first = code_[value];
    Replace(i, {fused, i.type, first.a, first.b, other, 0});
    return true;
  }

  std::vector<Instruction>& code_;
  std::vector<int> uses_;
  std::vector<bool> uniform_;
};

// Keeps what the outputs need and renumbers it.
void DropDeadCode(RegisterCode& program) {
  std::vector<Instruction>& code = program.code;
  std::vector<bool> live(code.size());
  for (uint16_t value : program.outputs) live[value] = true;
  for (size_t at = code.size(); at-- > 0;) {
    if (!live[at]) continue;
    const uint16_t operands[] = {code[at].a, code[at].b, code[at].c};
    for (int k = 0; k < NumOperands(code[at].op); ++k) live[operands[k]] = true;
  }
  std::vector<uint16_t> renamed(code.size());
  size_t kept = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    if (!live[at]) continue;
    renamed[at] = static_cast<uint16_t>(kept);
    Instruction i = code[at];
    uint16_t* operands[] = {&i.a, &i.b, &i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) {
      *operands[k] = renamed[*operands[k]];
    }
    code[kept++] = i;
  }
  code.resize(kept);
  for (uint16_t& value : program.outputs) value = renamed[value];
}

// The dtype that an instruction brings its operand to, 0 if none.
uint8_t NarrowedTo(Opcode op) {
  switch (op) {
    case Opcode::kWrapI8:
      return kI8;
    case Opcode::kWrapI16:
      return kI16;
    case Opcode::kWrapU8:
      return kU8;
    case Opcode::kWrapU16:
      return kU16;
    case Opcode::kRoundF16:
      return kF16;
    case Opcode::kRoundBf16:
      return kBF16;
    default:
      return 0;
  }
}

}  // namespace

RegisterType RegisterTypeOf(uint8_t dtype) {
  switch (dtype) {
    case kBool:
    case kU8:
    case kU16:
    case kU32:
      return RegisterType::kU32;
    case kI8:
    case kI16:
    case kI32:
      return RegisterType::kI32;
    case kI64:
      return RegisterType::kI64;
    case kU64:
      return RegisterType::kU64;
    case kF64:
      return RegisterType::kF64;
    default:
      return RegisterType::kF32;
  }
}

int NumOperands(Opcode op) {
  if (op <= Opcode::kIota) return 0;
  if (op <= Opcode::kClz || op == kRotateLeft) return 1;
  if (op <= Opcode::kGe || op == kRotateXor) return 2;
  return 3;
}

RegisterType ResultType(const Instruction& i) {
  const bool is_u32 = Between(i.op, Opcode::kEq, Opcode::kGe) ||
                      i.op == Opcode::kIsFinite || i.op == Opcode::kBitsF16 ||
                      i.op == Opcode::kBitsBf16;
  const bool is_f32 =
      i.op == Opcode::kFromBitsF16 || i.op == Opcode::kFromBitsBf16;
  return is_u32 ? RegisterType::kU32 : is_f32 ? RegisterType::kF32 : i.type;
}

StatusOr<RegisterCode> DecodeRegisterCode(const std::string& code,
                                          const std::vector<uint16_t>& outputs,
                                          size_t num_operands, size_t rank) {
  const size_t n = code.size() / kInstructionBytes;
  if (code.size() % kInstructionBytes != 0 || n > 65535) {
    return DataLoss(
        "malformed register program: " + std::to_string(code.size()) +
        " bytes are no list of at most 65535 instructions of 16");
  }
  RegisterCode program{std::vector<Instruction>(n), outputs};
  for (size_t at = 0; at < n; ++at) {
    const char* bytes = code.data() + at * kInstructionBytes;
    uint16_t operands[3];
    std::memcpy(operands, bytes + 2, sizeof operands);
    Instruction& i = program.code[at];
    i.op = static_cast<Opcode>(bytes[0]);
    i.type = static_cast<RegisterType>(bytes[1]);
    i.a = operands[0];
    i.b = operands[1];
    i.c = operands[2];
    std::memcpy(&i.imm, bytes + 8, sizeof i.imm);
    IPU_RETURN_IF_ERROR(Check(program.code, at, num_operands, rank));
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j] >= n) {
      return DataLoss("malformed register program: output " +
                      std::to_string(j) + " is value " +
                      std::to_string(outputs[j]) + " of " + std::to_string(n));
    }
  }
  return program;
}

std::vector<bool> UniformValues(const RegisterCode& program,
                                const std::vector<bool>& uniform) {
  std::vector<bool> values(program.code.size());
  for (size_t at = 0; at < values.size(); ++at) {
    const Instruction& i = program.code[at];
    const uint16_t operands[] = {i.a, i.b, i.c};
    values[at] =
        i.op != Opcode::kIota && (i.op != Opcode::kLoad || uniform[i.imm]);
    for (int k = 0; k < NumOperands(i.op); ++k) {
      values[at] = values[at] && values[operands[k]];
    }
  }
  return values;
}

void Simplify(RegisterCode& program, const std::vector<bool>& uniform) {
  DropDeadCode(program);
  Simplifier(program, UniformValues(program, uniform)).Run();
  DropDeadCode(program);
}

void LeaveRoundingToStores(RegisterCode& program,
                           const std::vector<uint8_t>& stored) {
  for (size_t j = 0; j < stored.size(); ++j) {
    uint16_t& value = program.outputs[j];
    while (stored[j] != 0 && NarrowedTo(program.code[value].op) == stored[j]) {
      value = program.code[value].a;
    }
  }
}

}  // namespace ipu::program
