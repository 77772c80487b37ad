#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

namespace ipu::model::IPU_SIMD_NS {

size_t TapeStep::NumOperands() const {
  if (!IsOnSlots()) return 0;
  switch (kind) {
    case kCompute:
      return instruction.operands().size();
    case kSlice:
      return window->indices.size();
    case kUpdate:
      return window->indices.size() + 1;
    default:
      return 1;
  }
}

uint16_t TapeStep::OperandSlot(size_t operand) const {
  if (IsIndex(operand)) {
    return static_cast<uint16_t>(step.operands[0] + operand);
  }
  return step.operands[kind == kUpdate ? 1 : operand];
}

bool TapeStep::ReadsRegister(size_t operand) const {
  if (kind == kUpdate) return dtype == DType::kNone || IsIndex(operand);
  return kind != kLoad && kind != kCopy && IsOnSlots();
}

uint32_t TapeStep::OperandWidth(size_t operand) const {
  if (kind == kCompute) return OperandBytes(instruction, operand);
  return IsIndex(operand) ? sizeof(int32_t) : width;
}

uint8_t TapeStep::OperandLanes(size_t operand) const {
  return IsIndex(operand) || kind == kSpread ? uint8_t{1} : lanes;
}

bool TapeStep::GivesRegister() const {
  if (kind == kSlice) return dtype == DType::kNone;
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
