#include "jaxlib/ipu/runtime/program/register_code.h"

#include <array>
#include <cstring>

#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::program {
namespace {

// As isa.py packs them.
constexpr size_t kInstructionBytes = 16;
static_assert(sizeof(Instruction) == kInstructionBytes);

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
      return {TypeBefore(i)};
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
    if (i.values[1] > static_cast<uint16_t>(RegisterType::kU64)) {
      return Malformed(
          at, name + " takes the unknown type " + std::to_string(i.values[1]));
    }
    if (i.op == Opcode::kBitcast &&
        RegisterBytes(i.type) != RegisterBytes(TypeBefore(i)))
      return Malformed(at, name + " changes the width of its operand");
  }
  const std::array<RegisterType, 3> types = OperandTypes(i);
  const RegisterType* type = types.data();
  for (uint16_t value : i.operands()) {
    if (value >= at) {
      return Malformed(at, name + " uses value " + std::to_string(value) +
                               ", which is not there yet");
    }
    const RegisterType found = ResultType(code[value]);
    if (found != *type) {
      return Malformed(at, name + " takes " +
                               kTypeNames[static_cast<int>(*type)] +
                               " but value " + std::to_string(value) + " is " +
                               kTypeNames[static_cast<int>(found)]);
    }
    ++type;
  }
  return Status();
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

RegisterType TypeBefore(const Instruction& conversion) {
  return static_cast<RegisterType>(conversion.values[1]);
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
    std::memcpy(&program.code[at], code.data() + at * kInstructionBytes,
                kInstructionBytes);
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

}  // namespace ipu::program
