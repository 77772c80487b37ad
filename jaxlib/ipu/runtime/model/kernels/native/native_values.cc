#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

int NativeValues::InSlot(uint16_t slot, uint32_t width, bool still) {
  const auto next = static_cast<int>(values_.size());
  const auto [at, is_new] = in_slot_.insert({slot, next});
  if (is_new) {
    const auto kind = still ? NativeValue::kInvariant : NativeValue::kBlock;
    values_.push_back({kind, width, slot});
  }
  return at->second;
}

int NativeValues::Elements(const Source& source, uint32_t width) {
  const auto next = static_cast<int>(values_.size());
  const auto [at, is_new] = of_source_.insert({&source, next});
  if (is_new) {
    values_.push_back({NativeValue::kElements, width, 0, &source});
    values_.back().moved = source.moved;
  }
  return at->second;
}

int NativeValues::Indices(const Source& source, program::RegisterType type) {
  const int value = Elements(source, program::RegisterBytes(type));
  values_[value].kind = NativeValue::kIndices;
  values_[value].index = type;
  return value;
}

void NativeValues::Compute(const program::Instruction& instruction,
                           std::span<const int> operands, uint16_t d) {
  const auto number = static_cast<int>(values_.size());
  NativeValue value{NativeValue::kComputed,
                    program::RegisterBytes(program::ResultType(instruction))};
  value.instruction = instruction;
  for (size_t k = 0; k < operands.size(); ++k) {
    value.operands[k] = operands[k];
    values_[operands[k]].last_use = number;
  }
  values_.push_back(value);
  in_slot_[d] = number;
}

std::optional<uint64_t> KnownBits(const NativeValue& value) {
  if (value.constant == nullptr) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, value.constant, value.width);
  return bits;
}

bool IsMagnitude(const NativeValue& value) {
  return value.kind == NativeValue::kComputed &&
         value.instruction.op == program::Opcode::kAbs;
}

uint32_t OperandBytes(const program::Instruction& i, size_t operand) {
  const uint8_t type =
      program::kSignatures[static_cast<uint8_t>(i.op)].operands[operand];
  if (type == program::kOwnType) return program::RegisterBytes(i.type);
  if (type == program::kSourceType) {
    return program::RegisterBytes(program::TypeBefore(i));
  }
  return program::RegisterBytes(static_cast<program::RegisterType>(type));
}

}  // namespace ipu::model::IPU_SIMD_NS
