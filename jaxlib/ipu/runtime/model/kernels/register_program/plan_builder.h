// Builds a Plan. Steps are added with symbolic places, which are replaced by
// slot numbers once all of them are known.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_BUILDER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_PLAN_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"

namespace ipu::model::IPU_SIMD_NS {

// The symbolic location of a value.
struct Place {
  enum Kind : uint8_t {
    kNone,
    kCell,      // one vector, for a value shared by many elements
    kNarrow,    // a block of 32-bit registers
    kWide,      // a block of 64-bit registers
    kPattern,   // a row that repeats, extended by one block
    kPanel,     // some rows of a transposed matrix
    kConstant,  // owned by the plan
    kMoving,    // a pointer that a step or the caller sets for each block
  };
  static constexpr int kKinds = kMoving + 1;

  Kind kind = kNone;
  uint32_t index = 0;
};

// A step whose slots are not numbered yet.
struct PendingStep {
  Step step{};
  Place d;
  Place operands[3];
  Rate rate = Rate::kBlock;
  const program::Instruction* instruction = nullptr;  // null: has no operands
};

class PlanBuilder {
 public:
  // `plan` must have its size. `function`: the caller provides blocks.
  PlanBuilder(Plan* plan, bool function) : plan_(*plan), function_(function) {}

  // Whether the iteration space has one element, so that all values are
  // uniform.
  bool single() const { return plan_.size == 1 && !function_; }

  Place NewConstant(const void* bits, uint32_t width);
  char* ConstantBytes(Place constant) {
    return plan_.constants[constant.index].bytes;
  }
  Place NewCell() { return {Place::kCell, count_[Place::kCell]++}; }
  // `width`: bytes per element that compete with registers for the cache.
  Place NewMoving(uint32_t width = 0);
  Place NewRegister(uint32_t width);
  // Makes a register available for reuse. Ignores places that are not
  // registers.
  void Release(Place place);

  Source& AddSource(Source source);
  // Sets the buffer in which the source's step stores values.
  void SetHome(Source& source, Place home);
  Place NewPattern(Source& source);
  void AddPanel(Source& source);
  size_t num_patterns() const { return patterns_.size(); }

  void Add(const PendingStep& step) { steps_.push_back(step); }
  // Adds a step that loads `source` into a place.
  void AddLoads(StepFn fn, const Source& source, Place d, Rate rate);
  void AddBlockOperand(uint16_t operand, Place place, uint32_t width);

  // Adds to the estimated nanoseconds per element.
  void Charge(double nanoseconds) { plan_.nanoseconds += nanoseconds; }

  // Numbers the slots and adds the steps to the plan. Returns false if there
  // are too many slots.
  bool NumberSlots();

  // Called last, when the plan has its outputs: chooses the block size and lays
  // out the memory of a state. The steps may have been replaced since.
  void LayOut();

  // The following are valid after NumberSlots.
  // The instruction of each of the plan's steps, null for loads of sources.
  std::span<const program::Instruction* const> instructions() const {
    return instructions_;
  }
  uint16_t first_constant() const { return SlotOf({Place::kConstant, 0}); }
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
  size_t first_[Place::kKinds] = {};  // slot of the first place of each kind
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
