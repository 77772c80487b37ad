#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"

namespace ipu::model::IPU_SIMD_NS {

VectorFunction FindFunction(const program::Instruction& instruction) {
  using program::RegisterType;
  switch (instruction.type) {
    case RegisterType::kF32:
      return FindMathF32(instruction.op).function;
    case RegisterType::kF64:
      return FindMathF64(instruction.op).function;
    case RegisterType::kI32:
      return FindMathI32(instruction.op).function;
    case RegisterType::kU32:
      return FindMathU32(instruction.op).function;
    case RegisterType::kI64:
      return FindMathI64(instruction.op).function;
    case RegisterType::kU64:
      return FindMathU64(instruction.op).function;
  }
  return {};
}

}  // namespace ipu::model::IPU_SIMD_NS
