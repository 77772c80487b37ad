#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

#include <cstring>
#include <limits>

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

namespace {

using At = std::vector<TapeStep>::const_iterator;

// The begin of the branch that a kSwitch selects, which is counted.
At TakeBranch(At made, char* const* slots) {
  const char* selector = slots[made->step.operands[0]];
  uint32_t index = *selector ? 0 : 1;
  if (made->dtype != DType::kBool) {
    std::memcpy(&index, selector, sizeof index);
  }
  do {
    ++made;
    while (made->kind != TapeStep::kBranch) ++made;
  } while (!made->last && index-- > 0);
  uint64_t count;
  char* const at = slots[made->step.operands[0]];
  std::memcpy(&count, at, sizeof count);
  ++count;
  std::memcpy(at, &count, sizeof count);
  return made;
}

}  // namespace

void RunSteps(const std::vector<TapeStep>& steps, const Frame* frames) {
  for (auto made = steps.begin(); made != steps.end(); ++made) {
    if (made->kind == TapeStep::kSwitch) {
      made = TakeBranch(made, frames->slots);
    } else if (made->kind > TapeStep::kOpaque) {
      while (made->kind != TapeStep::kJoin) ++made;
    } else {
      made->step.fn(made->step, frames[FrameOf(made->lanes)]);
    }
  }
}

uint64_t RunIterations(const TapeLoop& loop, const Frame* frames,
                       uint64_t most) {
  for (uint64_t trip = 1;; ++trip) {
    RunSteps(loop.body, frames);
    const bool goes_on = !loop.predicate || *frames->slots[*loop.predicate];
    if (trip == most || !goes_on) return trip;
  }
}

void RunNested(const TapeLoop& loop, const Frame* frames) {
  if (!loop.predicate) {
    RunIterations(loop, frames, loop.trips);
    return;
  }
  RunSteps(loop.condition, frames);
  if (!*frames->slots[*loop.predicate]) return;
  constexpr auto kAny = std::numeric_limits<uint64_t>::max();
  char* const at = frames->slots[loop.count];
  uint64_t count;
  const uint64_t trips = RunIterations(loop, frames, kAny);
  std::memcpy(&count, at, sizeof count);
  count += trips;
  std::memcpy(at, &count, sizeof count);
}

}  // namespace ipu::model::IPU_SIMD_NS
