// A plan in the making. Its steps name places; when all of them are known, they
// become slots.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_BUILDER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"

namespace ipu::model::IPU_SIMD_NS {

// Where a value lives.
struct Place {
  enum Kind : uint8_t {
    kNone,
    kCell,      // one vector, for a value that is the same for many elements
    kNarrow,    // a block of 32-bit registers
    kWide,      // a block of 64-bit registers
    kPattern,   // a row that repeats, and a block more
    kPanel,     // some rows of a transposed matrix
    kConstant,  // of the plan's
    kMoving,    // wherever a step or the caller puts it for each block
  };
  static constexpr int kKinds = kMoving + 1;

  Kind kind = kNone;
  uint32_t index = 0;
};

// A step whose slots have no numbers yet.
struct PendingStep {
  Step step{};
  Place d;
  Place operands[3];
  Rate rate = Rate::kBlock;
  const program::Instruction* instruction = nullptr;  // null: of no operands
};

class PlanBuilder {
 public:
  // `plan` knows its size. `function`: blocks come from the caller.
  PlanBuilder(Plan* plan, bool function) : plan_(*plan), function_(function) {}

  // An iteration space of one element, whose values are all the same
  // everywhere.
  bool single() const { return plan_.size == 1 && !function_; }

  Place NewConstant(const void* bits, uint32_t width);
  char* ConstantBytes(Place constant) {
    return plan_.constants[constant.index].bytes;
  }
  Place NewCell() { return {Place::kCell, count_[Place::kCell]++}; }
  // `width` bytes of each element share the cache with registers.
  Place NewMoving(uint32_t width = 0);
  Place NewRegister(uint32_t width);
  // Of a register: the next one may be it. Other places are left alone.
  void Release(Place place);

  Source& AddSource(Source source);
  // Where the source's step lays out values of its own.
  void SetHome(Source& source, Place home);
  Place NewPattern(Source& source);
  void AddPanel(Source& source);
  size_t num_patterns() const { return patterns_.size(); }

  void Add(const PendingStep& step) { steps_.push_back(step); }
  // A step that brings `source` to a place.
  void AddBringing(StepFn fn, const Source& source, Place d, Rate rate);
  void AddBlockOperand(uint16_t operand, Place place, uint32_t width);

  // Nanoseconds for an element.
  void Charge(double nanoseconds) { plan_.nanoseconds += nanoseconds; }

  // Numbers the slots and puts the steps into the plan. False if there are more
  // slots than numbers.
  bool NumberSlots();

  // Then, when the plan has its outputs: chooses the block, lays out a state's
  // memory. The steps may have become others.
  void LayOut();

  // After NumberSlots.
  // What each of the plan's steps computes, null for those of sources.
  std::span<const program::Instruction* const> instructions() const {
    return instructions_;
  }
  uint16_t SlotOf(Place place) const {
    return static_cast<uint16_t>(first_[place.kind] + place.index);
  }

 private:
  std::vector<bool> TouchedSlots() const;
  int64_t ChooseBlock(const std::vector<bool>& touched) const;
  void NumberSteps();

  Plan& plan_;
  const bool function_;
  uint32_t count_[Place::kKinds] = {};
  size_t first_[Place::kKinds] = {};  // slot of each kind's first place
  std::vector<Place> free_narrow_;
  std::vector<Place> free_wide_;
  uint32_t moving_bytes_ = 0;
  std::vector<PendingStep> steps_;
  std::vector<const program::Instruction*> instructions_;
  std::vector<Source*> patterns_;
  std::vector<Source*> panels_;
  std::vector<std::pair<Source*, Place>> homes_;
  std::vector<Place> block_operands_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_BUILDER_H_
