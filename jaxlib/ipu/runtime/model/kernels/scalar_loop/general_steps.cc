#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/general_steps.h"

#include <numeric>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;
using program::RegisterType;

bool IsWord(RegisterType type) {
  return type == RegisterType::kI32 || type == RegisterType::kU32;
}

// Whether these elements are integers of fewer than 32 bits.
bool IsSmall(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kU8 || dtype == DType::kI8 ||
         dtype == DType::kU16 || dtype == DType::kI16;
}

bool CanCompute(const TapeStep& s, const TapePlaces& places) {
  const program::Instruction& i = s.instruction;
  if (!IsWord(i.type)) return false;
  if (i.op >= program::kMulAdd && i.op <= program::kSubMul) return true;
  if (i.op == program::kDivideBy || i.op == program::kRemainderBy) {
    return places.constant[s.step.operands[1]] != nullptr;
  }
  if (i.op >= Opcode::kEq && i.op <= Opcode::kGe) return true;
  switch (i.op) {
    case Opcode::kConvert:
      return IsWord(program::TypeBefore(i));
    case Opcode::kWrapI8:
    case Opcode::kWrapI16:
    case Opcode::kWrapU8:
    case Opcode::kWrapU16:
    case Opcode::kNegate:
    case Opcode::kNot:
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kDiv:
    case Opcode::kRem:
    case Opcode::kMax:
    case Opcode::kMin:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kSelect:
    case Opcode::kClamp:
      return true;
    case Opcode::kShl:
    case Opcode::kShrLogical:
    case Opcode::kShrArithmetic:
      return places.ConstantWord(s.step.operands[1]).value_or(32) < 32;
    default:
      return false;
  }
}

// Whether a step can work on general registers.
bool CanBe(const TapeStep& s, const TapePlaces& places) {
  if (s.lanes != 1) return false;
  switch (s.kind) {
    case TapeStep::kCompute:
      return CanCompute(s, places);
    case TapeStep::kLoad:
    case TapeStep::kStore:
      return s.width == 4 && IsSmall(s.dtype);
    case TapeStep::kSlice:
      return s.width == 4 && s.GivesRegister();
    default:
      return false;
  }
}

// Whether a step takes an operand from either kind of register.
bool TakesEither(const TapeStep& s, size_t operand) {
  if (s.kind == TapeStep::kStore) return s.width == 4 && s.lanes == 1;
  const bool is_index = s.window != nullptr && s.OperandLanes(operand) == 1 &&
                        operand < s.window->indices.size();
  return is_index ||
         (s.kind == TapeStep::kUpdate && s.width == 4 && s.lanes == 1);
}

}  // namespace

GeneralSteps::GeneralSteps(std::span<const TapeStep> steps,
                           const TapePlaces& places)
    : steps_(steps),
      places_(places),
      operands_(steps.size()),
      results_(steps.size()),
      is_(steps.size()),
      holds_(places.same.size() + steps.size(), true),
      written_(holds_.size()),
      bound_(holds_.size()) {
  NumberValues();
  for (size_t k = 0; k < steps.size(); ++k) {
    const TapeStep& s = steps[k];
    is_[k] = CanBe(s, places);
    if (s.IsOnSlots()) written_[results_[k]] = true;
    if (!is_[k] && s.GivesRegister()) holds_[results_[k]] = false;
  }
  BindIndices();
  KeepParts();
  while (Change()) {
  }
}

void GeneralSteps::NumberValues() {
  const size_t slots = places_.same.size();
  std::vector<Value> now(slots);
  std::iota(now.begin(), now.end(), Value{0});
  std::vector<bool> carried(slots);
  for (size_t k = 0; k < steps_.size(); ++k) {
    const TapeStep& s = steps_[k];
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      const uint16_t slot = places_.same[s.OperandSlot(j)];
      operands_[k].push_back(now[slot]);
      if (now[slot] == slot) carried[slot] = true;
    }
    if (!s.IsOnSlots()) continue;
    const uint16_t d = places_.same[s.step.d];
    results_[k] = now[d] = slots + k;
  }
  const auto last = [&](Value& value) {
    if (value < slots) return;
    const uint16_t slot = places_.same[steps_[value - slots].step.d];
    if (carried[slot] && now[slot] == value) value = slot;
  };
  for (size_t k = 0; k < steps_.size(); ++k) {
    for (Value& operand : operands_[k]) last(operand);
    if (steps_[k].IsOnSlots()) last(results_[k]);
  }
}

// Finds what indices depend on.
void GeneralSteps::BindIndices() {
  for (size_t k = 0; k < steps_.size(); ++k) {
    const WindowStart* const window = steps_[k].window;
    const size_t count = window != nullptr ? window->indices.size() : 0;
    for (size_t j = 0; j < count; ++j) bound_[operands_[k][j]] = true;
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t k = steps_.size(); k-- > 0;) {
      const TapeStep& s = steps_[k];
      if (!is_[k] || s.kind != TapeStep::kCompute || !bound_[results_[k]]) {
        continue;
      }
      for (size_t j = 0; j < s.NumOperands(); ++j) {
        const Value value = operands_[k][j];
        if (bound_[value] || places_.constant[s.OperandSlot(j)]) continue;
        bound_[value] = more = true;
      }
    }
  }
}

// Words that are read as parts of a vector stay in vector registers, from which
// it is packed.
void GeneralSteps::KeepParts() {
  std::vector<bool> is_part(places_.same.size());
  for (const TapeStep& s : steps_) {
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      if (s.OperandLanes(j) == 1) continue;
      for (const uint16_t part :
           places_.overlaps[places_.same[s.OperandSlot(j)]]) {
        is_part[part] = true;
      }
    }
  }
  for (size_t k = 0; k < steps_.size(); ++k) {
    if (!steps_[k].IsOnSlots() || bound_[results_[k]]) continue;
    if (is_part[places_.same[steps_[k].step.d]]) holds_[results_[k]] = false;
  }
}

// Takes the steps that do not work on general registers alone from them.
// Returns whether that was any.
bool GeneralSteps::Change() {
  bool changes = false;
  const auto not_held = [&](Value value) {
    changes |= holds_[value];
    holds_[value] = false;
  };
  for (size_t k = 0; k < steps_.size(); ++k) {
    const TapeStep& s = steps_[k];
    const bool gives = s.GivesRegister();
    if (is_[k]) is_[k] = holds_[gives ? results_[k] : operands_[k][0]];
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      const Value value = operands_[k][j];
      if (!s.ReadsRegister(j) || TakesEither(s, j)) continue;
      if (!is_[k] && !bound_[value]) not_held(value);
      if (is_[k] && written_[value] && !holds_[value] && gives &&
          !bound_[results_[k]]) {
        not_held(results_[k]);
        is_[k] = false;
      }
    }
  }
  return changes;
}

}  // namespace ipu::model::IPU_SIMD_NS
