#include "jaxlib/ipu/runtime/program/register_code.h"

#include <cstring>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

// The encoding of kernel/instruction.py.
constexpr size_t kInstructionBytes = 16;
static_assert(sizeof(Instruction) == kInstructionBytes);

const Signature& SignatureOf(Opcode op) {
  return kSignatures[static_cast<uint8_t>(op)];
}

const char* NameOf(RegisterType type) {
  return kRegisters[static_cast<uint8_t>(type)].name;
}

// The register type that an operand or result type of a signature refers to.
RegisterType Resolve(uint8_t type, const Instruction& i) {
  if (type == kOwnType) return i.type;
  if (type == kSourceType) return TypeBefore(i);
  return static_cast<RegisterType>(type);
}

Status Malformed(size_t at, const std::string& what) {
  return DataLoss("malformed register program: instruction " +
                  std::to_string(at) + " " + what);
}

Status Check(const std::vector<Instruction>& code, size_t at,
             size_t num_operands, size_t rank) {
  const Instruction& i = code[at];
  const Signature& signature = SignatureOf(i.op);
  if (!signature.in_programs) {
    return Malformed(
        at, "has the unknown opcode " + std::to_string(static_cast<int>(i.op)));
  }
  if (static_cast<uint8_t>(i.type) >= kRegisters.size()) {
    return Malformed(
        at, "has the unknown type " + std::to_string(static_cast<int>(i.type)));
  }
  const std::string name = "(opcode " + std::to_string(static_cast<int>(i.op)) +
                           ", " + NameOf(i.type) + ")";
  if ((signature.types >> static_cast<uint8_t>(i.type) & 1) == 0) {
    return Malformed(at, name + " is not defined for its type");
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
    if (i.values[1] >= kRegisters.size()) {
      return Malformed(
          at, name + " takes the unknown type " + std::to_string(i.values[1]));
    }
    if (i.op == Opcode::kBitcast &&
        RegisterBytes(i.type) != RegisterBytes(TypeBefore(i)))
      return Malformed(at, name + " changes the width of its operand");
  }
  for (int k = 0; k < signature.arity; ++k) {
    const uint16_t value = i.values[k];
    if (value >= at) {
      return Malformed(at, name + " uses value " + std::to_string(value) +
                               ", which is not defined yet");
    }
    const RegisterType found = ResultType(code[value]);
    const RegisterType taken = Resolve(signature.operands[k], i);
    if (found != taken) {
      return Malformed(at, name + " takes " + NameOf(taken) + " but value " +
                               std::to_string(value) + " is " + NameOf(found));
    }
  }
  return Status();
}

}  // namespace

RegisterType RegisterTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
      return RegisterType::kU32;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
      return RegisterType::kI32;
    case DType::kI64:
      return RegisterType::kI64;
    case DType::kU64:
      return RegisterType::kU64;
    case DType::kF64:
      return RegisterType::kF64;
    default:
      return RegisterType::kF32;
  }
}

RegisterType TypeBefore(const Instruction& conversion) {
  return static_cast<RegisterType>(conversion.values[1]);
}

RegisterType ResultType(const Instruction& i) {
  return Resolve(SignatureOf(i.op).result, i);
}

StatusOr<RegisterCode> DecodeRegisterCode(const std::string& code,
                                          const std::vector<uint16_t>& outputs,
                                          size_t num_operands, size_t rank) {
  const size_t n = code.size() / kInstructionBytes;
  if (code.size() % kInstructionBytes != 0 || n > 65535) {
    return DataLoss(
        "malformed register program: " + std::to_string(code.size()) +
        " bytes are not a list of at most 65535 instructions of "
        "16 bytes");
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
