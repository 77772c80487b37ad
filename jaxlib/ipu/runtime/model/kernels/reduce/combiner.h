// The instruction that combines two elements as a reduction or a scatter does.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_COMBINER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_COMBINER_H_

#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

// Nothing if the kind has none. Of zeros with both signs, the maximum and the
// minimum are one of them (monoids.h), not always the same.
inline std::optional<program::Instruction> CombinerOf(
    program::ReduceKind kind, program::RegisterType type) {
  using program::Opcode, program::ReduceKind;
  const auto made = [type](Opcode op) {
    return program::Instruction{op, type, {}, 0};
  };
  switch (kind) {
    case ReduceKind::kSum:
      return made(Opcode::kAdd);
    case ReduceKind::kProduct:
      return made(Opcode::kMul);
    case ReduceKind::kMax:
      return made(Opcode::kMax);
    case ReduceKind::kMin:
      return made(Opcode::kMin);
    case ReduceKind::kAnd:
      return made(Opcode::kAnd);
    case ReduceKind::kOr:
      return made(Opcode::kOr);
    case ReduceKind::kXor:
      return made(Opcode::kXor);
    default:
      return std::nullopt;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_COMBINER_H_
