// Decodes and checks register programs (kernel/opcode.py).

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

// The number of values that an instruction reads.
inline int NumOperands(Opcode op) {
  return kSignatures[static_cast<uint8_t>(op)].arity;
}

struct Instruction {
  Opcode op;
  RegisterType type;
  uint16_t values[3];  // a, b and c; not all of them are operands
  uint64_t imm;

  // The indices of the values that the instruction reads.
  std::span<uint16_t> operands() {
    return {values, static_cast<size_t>(NumOperands(op))};
  }
  std::span<const uint16_t> operands() const {
    return {values, static_cast<size_t>(NumOperands(op))};
  }
};

// Instruction i defines value i. `outputs` are indices of values.
struct RegisterCode {
  std::vector<Instruction> code;
  std::vector<uint16_t> outputs;
};

constexpr bool IsFloat(RegisterType type) {
  return kRegisters[static_cast<uint8_t>(type)].is_float;
}
constexpr uint32_t RegisterBytes(RegisterType type) {
  return kRegisters[static_cast<uint8_t>(type)].bytes;
}

// The register type in which elements of `dtype` are computed.
RegisterType RegisterTypeOf(DType dtype);

// The operand type of a CONVERT or BITCAST.
RegisterType TypeBefore(const Instruction& conversion);

// The type of the value that the instruction defines.
RegisterType ResultType(const Instruction& instruction);

// Decodes a program and checks it: every opcode is known; every operand is an
// earlier value of the type that the instruction takes; every LOAD refers to an
// operand below `num_operands`, every IOTA to a dimension below `rank`.
StatusOr<RegisterCode> DecodeRegisterCode(const std::string& code,
                                          const std::vector<uint16_t>& outputs,
                                          size_t num_operands, size_t rank);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_
