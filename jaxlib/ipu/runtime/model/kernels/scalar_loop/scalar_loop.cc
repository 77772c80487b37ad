#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

template <typename T>
void CopyItem(const Step& s, const Frame& f) {
  T bits;
  std::memcpy(&bits, f.slots[s.operands[0]], sizeof bits);
  std::memcpy(f.slots[s.d], &bits, sizeof bits);
}

StepFn FindCopy(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return CopyItem<uint8_t>;
    case 2:
      return CopyItem<uint16_t>;
    case 4:
      return CopyItem<uint32_t>;
    case 8:
      return CopyItem<uint64_t>;
    default:
      return nullptr;
  }
}

void StoreItem(const Step& s, const Frame& f) {
  const auto convert = reinterpret_cast<ConvertFn>(s.imm);
  convert(f.slots[s.operands[0]], f.slots[s.d], 1);
}

Step MakeStep(StepFn fn, uint16_t d, uint16_t operand, uint64_t imm = 0) {
  Step step{};
  step.fn = fn;
  step.d = d;
  step.operands[0] = operand;
  step.imm = imm;
  return step;
}

class Loop : public ScalarLoop {
 public:
  Loop(Tape tape, std::vector<Step> condition, std::vector<Step> body,
       const Item* predicate)
      : tape_(std::move(tape)),
        condition_(std::move(condition)),
        body_(std::move(body)),
        tests_(predicate != nullptr),
        predicate_(tests_ ? *predicate : Item{}) {}

  uint64_t Run(const Memory& memory, uint64_t most) const override {
    char* slots[Tape::kMostSlots];
    uint64_t cells[Tape::kMostSlots];
    tape_.Bind(memory, slots, cells);
    const Frame frame{slots, memory.bases, nullptr, 0, 1};
    const auto run = [&frame](const std::vector<Step>& steps) {
      for (const Step& step : steps) step.fn(step, frame);
    };
    if (!tests_) {
      for (uint64_t turn = 0; turn < most; ++turn) run(body_);
      return most;
    }
    const char* predicate = memory.bases[predicate_.base] + predicate_.offset;
    for (uint64_t turns = 0;; ++turns) {
      run(condition_);
      if (!*predicate) return turns;
      run(body_);
    }
  }

 private:
  const Tape tape_;
  const std::vector<Step> condition_;
  const std::vector<Step> body_;
  const bool tests_;
  const Item predicate_;
};

}  // namespace

uint16_t Tape::Add(Slot slot) {
  slots_.push_back(slot);
  return static_cast<uint16_t>(slots_.size() - 1);
}

bool Tape::Overlap(const Item& a, const Item& b) const {
  return storage_[a.base] == storage_[b.base] &&
         a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Whether a step after `producer`, or an output that is an operand as it
// stands, reads what lies at `item` before the evaluation.
bool Tape::ReadLater(const Plan& plan, std::span<const Step> steps,
                     size_t producer, uint16_t first, const Item& item) const {
  for (const Step& step : steps.subspan(producer + 1)) {
    for (uint16_t operand : step.operands) {
      const Slot& slot = slots_[operand];
      if (slot.kind == Slot::kMemory && Overlap(slot.item, item)) return true;
    }
    for (const Source& source : plan.sources) {
      const Walk& walk = source.walk;
      if (step.imm == reinterpret_cast<uint64_t>(&source) &&
          Overlap({walk.base(), walk.offset(), walk.item_size()}, item)) {
        return true;
      }
    }
  }
  return std::any_of(
      plan.outputs.begin(), plan.outputs.end(), [&](const Output& output) {
        const Slot& slot = slots_[first + output.slot];
        return slot.kind == Slot::kMemory && Overlap(slot.item, item);
      });
}

bool Tape::Evaluate(const Plan& plan, std::span<const ItemStore> stores) {
  if (slots_.size() + plan.num_slots + 2 * stores.size() > kMostSlots) {
    return false;
  }
  const auto first = static_cast<uint16_t>(slots_.size());
  slots_.resize(first + plan.num_slots);
  size_t k = first + plan.offsets.size();
  for (const Cell& cell : plan.constants) {
    slots_[k++] = {Slot::kConstant, {}, cell.bytes};
  }
  for (const InPlace& operand : plan.in_place) {
    slots_[first + operand.slot] = {
        Slot::kMemory, {operand.base, operand.offset, operand.width}, nullptr};
  }

  std::vector<Step> steps = plan.one_steps;
  for (Step& step : steps) {
    step.d += first;
    for (uint16_t& operand : step.operands) operand += first;
  }
  // A value goes straight to its tensor, unless that still has to be read.
  std::vector<Step> last;
  for (size_t j = 0; j < stores.size(); ++j) {
    const auto [to, convert] = stores[j];
    const auto value = static_cast<uint16_t>(first + plan.outputs[j].slot);
    const auto producer =
        std::find_if(steps.begin(), steps.end(),
                     [value](const Step& step) { return step.d == value; });
    const uint16_t target = Add({Slot::kMemory, to, nullptr});
    if (convert != nullptr) {
      last.push_back(MakeStep(StoreItem, target, value,
                              reinterpret_cast<uint64_t>(convert)));
    } else if (producer == steps.end() ||
               ReadLater(plan, steps, producer - steps.begin(), first, to)) {
      last.push_back(MakeStep(FindCopy(to.bytes), target, value));
    } else {
      slots_[value] = slots_[target];
    }
  }
  // An operand that is an output as it stands is read before any is written.
  for (Step& step : last) {
    const uint16_t value = step.operands[0];
    if (slots_[value].kind != Slot::kMemory) continue;
    const bool produced =
        std::any_of(steps.begin(), steps.end(),
                    [value](const Step& s) { return s.d == value; });
    if (produced) continue;
    step.operands[0] = Add({});
    const uint32_t bytes = slots_[value].item.bytes;
    steps.push_back(MakeStep(FindCopy(bytes), step.operands[0], value));
  }
  steps_.insert(steps_.end(), steps.begin(), steps.end());
  steps_.insert(steps_.end(), last.begin(), last.end());
  return true;
}

bool Tape::Copy(Item from, Item to) {
  const StepFn copy = FindCopy(from.bytes);
  if (copy == nullptr || slots_.size() + 2 > kMostSlots) return false;
  const uint16_t source = Add({Slot::kMemory, from, nullptr});
  steps_.push_back(MakeStep(copy, Add({Slot::kMemory, to, nullptr}), source));
  return true;
}

void Tape::Call(StepFn fn, const void* what) {
  steps_.push_back(MakeStep(fn, 0, 0, reinterpret_cast<uint64_t>(what)));
}

void Tape::Bind(const Memory& memory, char** slots, uint64_t* cells) const {
  for (const Slot& slot : slots_) {
    switch (slot.kind) {
      case Slot::kCell:
        *slots = reinterpret_cast<char*>(cells);
        break;
      case Slot::kConstant:
        *slots = const_cast<char*>(slot.constant);
        break;
      case Slot::kMemory:
        *slots = memory.bases[slot.item.base] + slot.item.offset;
        break;
    }
    ++slots;
    ++cells;
  }
}

std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts) {
  Tape tape(parts.storage);
  const auto record = [&tape](std::span<const Kernel* const> kernels) {
    return std::all_of(
        kernels.begin(), kernels.end(),
        [&tape](const Kernel* kernel) { return kernel->Record(tape); });
  };
  if (!record(parts.condition)) return nullptr;
  std::vector<Step> condition = tape.TakeSteps();
  if (!record(parts.body)) return nullptr;
  std::vector<Step> body = tape.TakeSteps();
  const View* p = parts.predicate;
  const Item predicate = p ? Item{p->base, p->offset, 1} : Item{};
  return std::make_unique<Loop>(std::move(tape), std::move(condition),
                                std::move(body), p ? &predicate : nullptr);
}

}  // namespace ipu::model::IPU_SIMD_NS
