#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Programs with more slots or outputs than these (a guess) allocate memory in
// each run.
constexpr size_t kFewSlots = 128;
constexpr size_t kFewOutputs = 16;

class OneElement final : public PreparedEvaluator {
 public:
  using PreparedEvaluator::PreparedEvaluator;

  void Run(const Memory& memory, int64_t, int64_t) const override {
    StackArray<char*, kFewSlots> slots(plan().num_slots);
    StackArray<uint64_t, kFewSlots> cells(plan().offsets.size());
    RunSteps(memory, slots.get(), cells.get());
    // All outputs are read before any is stored, because results may be
    // operands.
    StackArray<uint64_t, kFewOutputs> values(plan().outputs.size());
    Read(slots.get(), values.get());
    Store(memory, values.get());
  }

  bool Record(Tape& tape) const override {
    std::vector<ItemStore> stores;
    for (const Destination& d : destinations()) {
      stores.push_back({ItemOf(d), d.convert ? d.dtype : DType::kNone});
    }
    return tape.Evaluate(plan(), stores);
  }

 private:
  void RunSteps(const Memory& memory, char** slots, uint64_t* cells) const {
    size_t k = 0;
    for (; k < plan().offsets.size(); ++k) {
      slots[k] = reinterpret_cast<char*>(cells + k);
    }
    for (const Cell& cell : plan().constants) {
      slots[k++] = const_cast<char*>(cell.bytes);
    }
    for (const InPlace& operand : plan().in_place) {
      slots[operand.slot] = memory.bases[operand.base] + operand.offset;
    }
    const Frame frame{slots, memory.bases, nullptr, 0, 1};
    for (const Step& step : plan().one_steps) step.fn(step, frame);
  }

  void Read(char* const* slots, uint64_t* values) const {
    for (const Output& output : plan().outputs) {
      if (output.width == 4) {
        std::memcpy(values++, slots[output.slot], 4);
      } else {
        std::memcpy(values++, slots[output.slot], 8);
      }
    }
  }

  void Store(const Memory& memory, const uint64_t* values) const {
    for (const Destination& d : destinations()) {
      char* const to = d.iterator.Data(memory.bases);
      if (d.convert != nullptr) {
        d.convert(values, to, 1);
      } else if (d.item_size == 4) {
        std::memcpy(to, values, 4);
      } else {
        std::memcpy(to, values, 8);
      }
      ++values;
    }
  }
};

}  // namespace

std::unique_ptr<const Evaluator> MakeOneElement(Prepared prepared) {
  return std::make_unique<OneElement>(std::move(prepared));
}

}  // namespace ipu::model::IPU_SIMD_NS
