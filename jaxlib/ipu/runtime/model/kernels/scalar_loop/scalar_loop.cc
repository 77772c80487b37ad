#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

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
  const auto convert = PayloadOf<ConvertFn>(s);
  convert(f.slots[s.operands[0]], f.slots[s.d], 1);
}

// Runs the machine code, whose slots begin at d, on a 32-bit count of
// elements.
void RunBlock(const Step& s, const Frame& f) {
  const int64_t count = s.operands[1] | uint32_t{s.operands[2]} << 16;
  const auto code = PayloadOf<NativeFn>(s);
  code(Frame{f.slots + s.d, f.bases, nullptr, 0, count});
}

TapeStep MakeStep(StepFn fn, uint16_t d, uint16_t operand,
                  Payload payload = {}) {
  TapeStep made{};
  made.step.fn = fn;
  made.step.d = d;
  made.step.operands[0] = operand;
  made.step.payload = payload;
  return made;
}

// A CONVERT from a register type to itself, which the native compiler treats as
// a move.
program::Instruction Same(program::RegisterType type) {
  const auto from = static_cast<uint16_t>(type);
  return {program::Opcode::kConvert, type, {0, from, 0}, 0};
}

TapeStep MakeCopy(uint32_t bytes, uint16_t d, uint16_t operand) {
  TapeStep made = MakeStep(FindCopy(bytes), d, operand);
  if (bytes == 4) made.instruction = Same(program::RegisterType::kU32);
  if (bytes == 8) made.instruction = Same(program::RegisterType::kU64);
  return made;
}

TapeStep MakeStore(DType dtype, uint16_t d, uint16_t operand) {
  TapeStep made = MakeStep(StoreItem, d, operand, FindStore(dtype));
  made.instruction = Same(program::RegisterTypeOf(dtype));
  made.stored = dtype;
  return made;
}

class Loop : public ScalarLoop {
 public:
  // If there is a predicate, the body includes the condition's steps at its
  // end.
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
      for (uint64_t i = 0; i < most; ++i) run(body_);
      return most;
    }
    const char* predicate = memory.bases[predicate_.base] + predicate_.offset;
    run(condition_);
    uint64_t trips = 0;
    for (; *predicate; ++trips) run(body_);
    return trips;
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

// Whether `item` is read, in its state before the evaluation, by a step after
// `producer` or by an output that is an unmodified operand.
bool Tape::ReadLater(const Plan& plan, std::span<const TapeStep> steps,
                     size_t producer, uint16_t first, const Item& item) const {
  for (const auto& [step, instruction, stored] : steps.subspan(producer + 1)) {
    for (uint16_t operand : step.operands) {
      const Slot& slot = slots_[operand];
      if (slot.kind == Slot::kMemory && Overlap(slot.item, item)) return true;
    }
    for (const Source& source : plan.sources) {
      const StridedIterator& iterator = source.iterator;
      if (step.payload == Payload(&source) &&
          Overlap({iterator.base(), iterator.offset(), iterator.item_size()},
                  item)) {
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
  AddConstants(plan, first + plan.offsets.size());
  for (const InPlace& operand : plan.in_place) {
    slots_[first + operand.slot] = {
        Slot::kMemory, {operand.base, operand.offset, operand.width}, nullptr};
  }

  std::vector<TapeStep> steps;
  for (size_t k = 0; k < plan.one_steps.size(); ++k) {
    TapeStep& made = steps.emplace_back(plan.one_steps[k]);
    made.instruction = plan.one_instructions[k];
    made.step.d += first;
    for (uint16_t& operand : made.step.operands) operand += first;
  }
  // Values are written directly to their tensors, unless a tensor still has to
  // be read. A value that is several outputs is written directly to the first.
  std::vector<TapeStep> last;
  for (size_t j = 0; j < stores.size(); ++j) {
    const auto [to, dtype] = stores[j];
    const auto value = static_cast<uint16_t>(first + plan.outputs[j].slot);
    const auto producer =
        std::find_if(steps.begin(), steps.end(),
                     [value](const TapeStep& s) { return s.step.d == value; });
    const uint16_t target = Add({Slot::kMemory, to, nullptr});
    if (dtype != DType::kNone) {
      last.push_back(MakeStore(dtype, target, value));
    } else if (producer == steps.end() || slots_[value].kind == Slot::kMemory ||
               ReadLater(plan, steps, producer - steps.begin(), first, to)) {
      last.push_back(MakeCopy(to.bytes, target, value));
    } else {
      slots_[value] = slots_[target];
    }
  }
  // Operands that are outputs themselves are read before any output is written.
  for (TapeStep& made : last) {
    const uint16_t value = made.step.operands[0];
    if (slots_[value].kind != Slot::kMemory) continue;
    const bool produced =
        std::any_of(steps.begin(), steps.end(),
                    [value](const TapeStep& s) { return s.step.d == value; });
    if (produced) continue;
    made.step.operands[0] = Add({});
    const uint32_t bytes = slots_[value].item.bytes;
    steps.push_back(MakeCopy(bytes, made.step.operands[0], value));
  }
  steps_.insert(steps_.end(), steps.begin(), steps.end());
  steps_.insert(steps_.end(), last.begin(), last.end());
  return true;
}

void Tape::AddConstants(const Plan& plan, size_t at) {
  for (const Cell& cell : plan.constants) {
    slots_[at++] = {Slot::kConstant, {}, cell.bytes};
  }
}

bool Tape::Run(const Plan& plan, std::span<const Item> outputs,
               uint32_t count) {
  if (slots_.size() + plan.num_slots > kMostSlots) return false;
  const auto first = static_cast<uint16_t>(slots_.size());
  slots_.resize(first + plan.num_slots);
  AddConstants(plan, first + plan.offsets.size());
  for (size_t j = 0; j < outputs.size(); ++j) {
    slots_[first + plan.outputs[j].slot] = {Slot::kMemory, outputs[j]};
  }
  TapeStep made = MakeStep(RunBlock, first, 0, plan.steps[0].payload);
  made.step.operands[1] = static_cast<uint16_t>(count);
  made.step.operands[2] = static_cast<uint16_t>(count >> 16);
  steps_.push_back(made);
  return true;
}

bool Tape::Copy(Item from, Item to) {
  if (FindCopy(from.bytes) == nullptr || slots_.size() + 2 > kMostSlots) {
    return false;
  }
  const uint16_t source = Add({Slot::kMemory, from, nullptr});
  const uint16_t target = Add({Slot::kMemory, to, nullptr});
  steps_.push_back(MakeCopy(from.bytes, target, source));
  return true;
}

void Tape::Call(StepFn fn, const void* what) {
  steps_.push_back(MakeStep(fn, 0, 0, what));
}

// Returns nothing if two slots overlap partially or may share storage.
std::optional<TapePlaces> Tape::Places() const {
  TapePlaces places;
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    auto same = static_cast<uint16_t>(k);
    for (size_t j = 0; j < k && slot.kind == Slot::kMemory; ++j) {
      const Slot& other = slots_[j];
      if (other.kind != Slot::kMemory) continue;
      if (slot.item == other.item) {
        same = places.same[j];
        break;
      }
      if (Overlap(slot.item, other.item)) return std::nullopt;
    }
    places.same.push_back(same);
    places.in_memory.push_back(slot.kind == Slot::kMemory);
  }
  return places;
}

std::vector<Step> Tape::TakeSteps() {
  const std::vector<TapeStep> steps = std::exchange(steps_, {});
  if (const auto places = Places()) {
    return MakeNativeTape(steps, *places, code_);
  }
  std::vector<Step> plain;
  for (const TapeStep& made : steps) plain.push_back(made.step);
  return plain;
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
  const View* p = parts.predicate;
  if (!record(parts.body)) return nullptr;
  // With the condition at the end of the body, one run of machine code can
  // contain both.
  if (p != nullptr && !record(parts.condition)) return nullptr;
  std::vector<Step> body = tape.TakeSteps();
  const Item predicate = p ? Item{p->base, p->offset, 1} : Item{};
  return std::make_unique<Loop>(std::move(tape), std::move(condition),
                                std::move(body), p ? &predicate : nullptr);
}

}  // namespace ipu::model::IPU_SIMD_NS
