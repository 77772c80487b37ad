#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_division.h"

#include <cstddef>

#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;
using program::RegisterType;

bool IsSigned(RegisterType type) {
  return type == RegisterType::kI32 || type == RegisterType::kI64;
}

}  // namespace

bool IsScalarDivision(const TapeStep& s) {
  const program::Instruction& i = s.instruction;
  return s.kind == TapeStep::kCompute && s.lanes == 1 &&
         !program::IsFloat(i.type) &&
         (i.op == Opcode::kDiv || i.op == Opcode::kRem);
}

// x / 0 is -1 and x % 0 is x. The processor traps there, and at x / -1 if x is
// the lowest integer.
Gpr DivideGeneral(const TapeStep& s, Assembler& body) {
  const RegisterType type = s.instruction.type;
  const bool wide = program::RegisterBytes(type) == 8;
  const bool divides = s.instruction.op == Opcode::kDiv;
  // Instructions on 64 bits have a prefix.
  const auto sized = [&](std::initializer_list<int> bytes) {
    if (wide) body.Bytes({0x48});
    body.Bytes(bytes);
  };
  sized({0x8d, 0x51, 1});  // lea edx, [rcx + 1]
  if (IsSigned(type)) {
    sized({0x83, 0xfa, 1});  // cmp edx, 1: above unless b is 0 or -1
  } else {
    sized({0x85, 0xc9});  // test ecx, ecx: above unless b is 0
  }
  const size_t divide =
      body.Jump(IsSigned(type) ? Condition::kAbove : Condition::kNotEqual);
  if (divides) {
    sized({0x0f, 0xaf, 0xc1});  // imul eax, ecx: 0 or -a
    sized({0x29, 0xd0});        // sub eax, edx
  } else {
    sized({0x0f, 0xaf, 0xd0});  // imul edx, eax: a or 0
  }
  const size_t done = body.JumpAlways();
  body.Land(divide);
  if (IsSigned(type)) {
    sized({0x99});        // cdq
    sized({0xf7, 0xf9});  // idiv ecx
  } else {
    body.Bytes({0x31, 0xd2});  // xor edx, edx
    sized({0xf7, 0xf1});       // div ecx
  }
  body.Land(done);
  return divides ? Gpr::kRax : Gpr::kRdx;
}

void DivideScalars(const TapeStep& s, int d, int a, int b,
                   VectorEmitter& emit) {
  const bool wide = program::RegisterBytes(s.instruction.type) == 8;
  const auto move = [&](VectorOp op, int vector, Gpr general) {
    emit.body().Vector(x86::Wide(op, wide), kShortest, vector, 0,
                       static_cast<int>(general));
  };
  move(x86::kStoreLow, a, Gpr::kRax);
  move(x86::kStoreLow, b, Gpr::kRcx);
  move(x86::kLoadLow, d, DivideGeneral(s, emit.body()));
}

}  // namespace ipu::model::IPU_SIMD_NS
