// Register programs (isa.py) as a list of instructions: read, checked, and
// simplified for machines that work on blocks of values.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

// Instructions that no program holds: Simplify makes them of several.
inline constexpr Opcode kRotateLeft{200};  // (a): by imm bits
inline constexpr Opcode kRotateXor{201};   // rotate a left by imm, xor b
inline constexpr Opcode kMulAdd{210};      // a * b + c, rounded twice
inline constexpr Opcode kMulSub{211};      // a * b - c
inline constexpr Opcode kNegMulAdd{212};   // c - a * b
inline constexpr Opcode kMulMul{213};      // (a * b) * c
inline constexpr Opcode kAddAdd{214};      // (a + b) + c
inline constexpr Opcode kAddMul{215};      // (a + b) * c
inline constexpr Opcode kSubMul{216};      // (a - b) * c

struct Instruction {
  Opcode op;
  RegisterType type;
  uint16_t a;
  uint16_t b;
  uint16_t c;
  uint64_t imm;
};

// Instruction i defines value i; `outputs` names the values that leave.
struct RegisterCode {
  std::vector<Instruction> code;
  std::vector<uint16_t> outputs;
};

constexpr bool IsFloat(RegisterType type) { return type <= RegisterType::kF64; }
constexpr uint32_t RegisterBytes(RegisterType type) {
  switch (type) {
    case RegisterType::kF64:
    case RegisterType::kI64:
    case RegisterType::kU64:
      return 8;
    default:
      return 4;
  }
}

// The register type that elements of `dtype` are computed in.
RegisterType RegisterTypeOf(uint8_t dtype);

// How many of a, b, c name values.
int NumOperands(Opcode op);

// The type of the value that the instruction defines.
RegisterType ResultType(const Instruction& instruction);

// Decodes and checks: every opcode is known, every operand names an earlier
// value of the type that the instruction takes, every LOAD an operand below
// `num_operands`, every IOTA a dimension below `rank`.
StatusOr<RegisterCode> DecodeRegisterCode(const std::string& code,
                                          const std::vector<uint16_t>& outputs,
                                          size_t num_operands, size_t rank);

// Makes super-instructions where one pass over the values replaces two, drops
// what no output needs. Every output keeps its bits. `uniform[k]` says that
// operand k is the same for all elements: what is computed of such values is
// left alone, for it is computed only once.
void Simplify(RegisterCode& code, const std::vector<bool>& uniform);

// Which values are the same for all elements, given which operands are.
std::vector<bool> UniformValues(const RegisterCode& code,
                                const std::vector<bool>& uniform);

// An output that will be stored as the narrow type `dtype` needs no rounding or
// wrapping to that type before: the store does it. `stored[j]` is output j's
// dtype, 0 if it is not stored.
void LeaveRoundingToStores(RegisterCode& code,
                           const std::vector<uint8_t>& stored);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_CODE_H_
