#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

namespace ipu::model::IPU_SIMD_NS {

size_t TapeStep::NumOperands() const {
  if (!IsOnSlots()) return 0;
  switch (kind) {
    case kCompute:
      return instruction.operands().size();
    case kUpdate:
      return 2;
    default:
      return 1;
  }
}

bool TapeStep::ReadsRegisters() const {
  return kind != kLoad && kind != kCopy && IsOnSlots();
}

uint32_t TapeStep::OperandWidth(size_t operand) const {
  if (kind == kCompute) return OperandBytes(instruction, operand);
  const bool is_index = kind == kSlice || (kind == kUpdate && operand == 0);
  return is_index ? sizeof(int32_t) : width;
}

uint8_t TapeStep::OperandLanes(size_t operand) const {
  const bool is_index = kind == kSlice || (kind == kUpdate && operand == 0);
  return is_index || kind == kSpread ? uint8_t{1} : lanes;
}

bool TapeStep::GivesRegister() const {
  return kind != kStore && kind != kCopy && kind != kUpdate && IsOnSlots();
}

uint32_t TapeStep::ResultWidth() const {
  if (kind != kCompute) return width;
  return program::RegisterBytes(program::ResultType(instruction));
}

uint8_t TapeStep::ResultLanes() const {
  return kind == kSum ? uint8_t{1} : lanes;
}

}  // namespace ipu::model::IPU_SIMD_NS
