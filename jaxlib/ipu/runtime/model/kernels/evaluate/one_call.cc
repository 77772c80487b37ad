#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class OneCall final : public PreparedEvaluator {
 public:
  using PreparedEvaluator::PreparedEvaluator;

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    OneCallSlots all(plan());
    char** const slots = all.get();
    const Frame uniform{slots, memory.bases, nullptr, 0, kUniformLanes};
    for (const Step& step : plan().uniform_steps) step.fn(step, uniform);
    for (size_t j = 0; j < destinations().size(); ++j) {
      const Output& output = plan().outputs[j];
      slots[output.slot] =
          destinations()[j].iterator.Data(memory.bases) + begin * output.width;
    }
    const Step& step = plan().steps[0];
    step.fn(step, Frame{slots, memory.bases, nullptr, begin, end - begin});
    EndStreams();
  }

  // Code without uniform values and slots of its own needs no set-up and is
  // recorded directly.
  bool Record(Tape& tape) const override {
    const bool alternates =
        std::any_of(plan().outputs.begin(), plan().outputs.end(),
                    [](const Output& output) { return output.alternates; });
    const std::vector<uint16_t>& used = plan().native[0].slots;
    const bool owns = std::any_of(used.begin(), used.end(), [&](uint16_t slot) {
      return slot < plan().offsets.size();
    });
    if (alternates || owns || !plan().uniform_steps.empty()) {
      return PreparedEvaluator::Record(tape);
    }
    std::vector<Item> outputs;
    for (const Destination& d : destinations()) outputs.push_back(ItemOf(d));
    return tape.Run(plan(), outputs, static_cast<uint32_t>(size()));
  }
};

}  // namespace

bool IsOneCall(const Prepared& prepared) {
  const Plan& plan = prepared.plan();
  const auto& destinations = prepared.destinations;
  return plan.native.size() == 1 && plan.steps.size() == 1 && plan.row == 0 &&
         plan.num_slots <= OneCallSlots::kFewSlots &&
         plan.offsets.size() <= OneCallSlots::kFewCells &&
         std::all_of(
             plan.outputs.begin(), plan.outputs.end(),
             [](const Output& o) { return o.way == Output::kDirect; }) &&
         std::all_of(destinations.begin(), destinations.end(),
                     [](const Destination& d) { return d.direct(); });
}

std::unique_ptr<const Evaluator> MakeOneCall(Prepared prepared) {
  return std::make_unique<OneCall>(std::move(prepared));
}

}  // namespace ipu::model::IPU_SIMD_NS
