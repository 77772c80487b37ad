#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_builder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The part of the first-level cache that the values of a block may take, and
// the minimum length of a block. Guesses, for caches of 32 KiB and more.
constexpr int64_t kCacheBytes = 20 << 10;
constexpr int64_t kShortestBlock = 64;

// Several steps over arrays that the second-level cache (a guess of its size)
// does not hold: blocks are shorter, so that the processor loads the next one
// and stores the last one while it computes. Measured: 3 to 8 KiB are alike,
// and up to a third faster than 20 for a function between two runs of machine
// code.
constexpr int64_t kSecondCacheBytes = 1 << 20;
constexpr int64_t kStreamedBytes = 6 << 10;

constexpr size_t kLine = 64;

size_t Lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Place PlanBuilder::NewConstant(const void* bits, uint32_t width) {
  Cell& cell = plan_.constants.emplace_back();
  for (int64_t i = 0; i < kUniformLanes; ++i) {
    std::memcpy(cell.bytes + i * width, bits, width);
  }
  return {Place::kConstant, count_[Place::kConstant]++};
}

Place PlanBuilder::NewMoving(uint32_t width) {
  moving_bytes_ += width;
  return {Place::kMoving, count_[Place::kMoving]++};
}

Place PlanBuilder::NewRegister(uint32_t width) {
  const Place::Kind kind = width == 8 ? Place::kWide : Place::kNarrow;
  std::vector<Place>& free = width == 8 ? free_wide_ : free_narrow_;
  if (free.empty()) return {kind, count_[kind]++};
  const Place place = free.back();
  free.pop_back();
  return place;
}

void PlanBuilder::Release(Place place) {
  if (place.kind == Place::kNarrow) free_narrow_.push_back(place);
  if (place.kind == Place::kWide) free_wide_.push_back(place);
}

Source& PlanBuilder::AddSource(Source source) {
  return plan_.sources.emplace_back(std::move(source));
}

void PlanBuilder::SetHome(Source& source, Place home) {
  homes_.push_back({&source, home});
}

Place PlanBuilder::NewPattern(Source& source) {
  patterns_.push_back(&source);
  return {Place::kPattern, count_[Place::kPattern]++};
}

void PlanBuilder::AddPanel(Source& source) {
  panels_.push_back(&source);
  ++count_[Place::kPanel];
}

void PlanBuilder::AddLoads(StepFn fn, const Source& source, Place d,
                           Rate rate) {
  PendingStep pending;
  pending.step.fn = fn;
  pending.step.payload = &source;
  pending.d = d;
  pending.rate = rate;
  Add(pending);
}

void PlanBuilder::AddBlockOperand(uint16_t operand, Place place,
                                  uint32_t width) {
  plan_.block_operands.push_back({operand, 0, width});
  block_operands_.push_back(place);
}

// The slots that the steps of a block read or write.
std::vector<bool> PlanBuilder::TouchedSlots() const {
  std::vector<bool> touched(plan_.num_slots);
  for (const Step& step : plan_.steps) {
    if (step.fn == RunNative) {
      for (uint16_t slot : plan_.native[step.d].slots) touched[slot] = true;
      continue;
    }
    touched[step.d] = true;
    for (uint16_t slot : step.operands) touched[slot] = true;
  }
  for (const auto& [source, home] : homes_) touched[source->home] = true;
  return touched;
}

int64_t PlanBuilder::ChooseBlock(const std::vector<bool>& touched) const {
  const auto count = [&](Place::Kind kind) {
    const auto first = touched.begin() + first_[kind];
    return std::count(first, first + count_[kind], true);
  };
  const int64_t element =
      std::max<int64_t>(4 * count(Place::kNarrow) + 8 * count(Place::kWide) +
                            int64_t{moving_bytes_},
                        1);
  const bool streamed = !function_ && plan_.row == 0 &&
                        plan_.steps.size() > 1 &&
                        plan_.size > kSecondCacheBytes / element;
  const int64_t bytes = streamed ? kStreamedBytes : kCacheBytes;
  int64_t block = bytes / element / 64 * 64;
  block = std::clamp(block, kShortestBlock, kLongestBlock);
  if (function_) return block;
  if (plan_.row > 0 && plan_.row < block) {
    block -= block % plan_.row;  // a multiple of a group
  } else {
    block = std::max(block - block % plan_.group, plan_.group);
  }
  return std::min(block, std::max<int64_t>((plan_.size + 63) / 64 * 64, 64));
}

// Assigns the memory of a state to the slots that it owns, in the order of
// their kinds. Blocks that no step touches take no memory.
void PlanBuilder::LayOut() {
  std::vector<bool> needed = TouchedSlots();
  plan_.block = ChooseBlock(needed);
  for (const Output& output : plan_.outputs) {
    needed[output.slot] = needed[output.home] = true;
  }
  const int64_t block = plan_.block;
  size_t bytes = Lines(plan_.num_slots * sizeof(char*));
  const auto own = [&](size_t count, size_t size) {
    for (size_t k = 0; k < count; ++k) {
      const size_t slot = plan_.offsets.size();
      const bool used = needed[slot] || slot < count_[Place::kCell];
      plan_.offsets.push_back(bytes);
      if (used) bytes += Lines(size);
    }
  };
  own(count_[Place::kCell], kUniformBytes);
  own(count_[Place::kNarrow], block * 4 + kSlackBytes);
  own(count_[Place::kWide], block * 8 + kSlackBytes);
  for (const Source* source : patterns_) {
    own(1, (source->period + block) * source->width + kSlackBytes);
  }
  for (Source* source : panels_) {
    const StridedIterator& iterator = source->iterator;
    const int64_t elements = source->panel_rows * iterator.columns();
    source->panel = static_cast<uint16_t>(plan_.offsets.size());
    plan_.grain = std::max(plan_.grain, elements);
    needed[source->panel] = true;
    own(1, sizeof(PanelHeader) + elements * iterator.item_size());
  }
  plan_.staging = bytes;
  const bool staged = std::any_of(
      plan_.sources.begin(), plan_.sources.end(),
      [](const Source& source) { return source.convert != nullptr; });
  if (staged) bytes += block * 2 + kSlackBytes;
  plan_.bytes = bytes;
}

void PlanBuilder::NumberSteps() {
  // Operands of an empty iteration space may have no storage.
  if (plan_.size == 0) return;
  std::vector<Step>* const lists[] = {&plan_.uniform_steps, &plan_.row_steps,
                                      &plan_.steps};
  for (PendingStep& pending : steps_) {
    Step& step = pending.step;
    step.d = SlotOf(pending.d);
    for (int k = 0; k < 3; ++k) step.operands[k] = SlotOf(pending.operands[k]);
    lists[static_cast<int>(pending.rate)]->push_back(step);
    if (pending.rate == Rate::kBlock) {
      instructions_.push_back(pending.instruction);
    }
    if (!single()) continue;
    if (step.fn == PointAtOperand) {
      const StridedIterator& iterator = SourceOf(step).iterator;
      plan_.in_place.push_back(
          {step.d, iterator.base(), iterator.offset(), iterator.item_size()});
    } else {
      plan_.one_steps.push_back(step);
      plan_.one_instructions.push_back(
          pending.instruction ? *pending.instruction : kUnknown);
    }
  }
}

bool PlanBuilder::NumberSlots() {
  for (int kind = 0; kind < Place::kKinds; ++kind) {
    first_[kind] = plan_.num_slots;
    plan_.num_slots += count_[kind];
  }
  if (plan_.num_slots > std::numeric_limits<uint16_t>::max()) return false;
  NumberSteps();
  for (auto& [source, place] : homes_) source->home = SlotOf(place);
  for (size_t k = 0; k < block_operands_.size(); ++k) {
    plan_.block_operands[k].slot = SlotOf(block_operands_[k]);
  }
  return true;
}

}  // namespace ipu::model::IPU_SIMD_NS
