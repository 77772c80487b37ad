#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step_cost.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;

// The most steps in a run. A guess: longer ones rarely fit into the registers.
constexpr size_t kLongestRun = 48;

// The time of compiled steps relative to interpreted ones. A guess.
constexpr double kNativeShare = 0.3;

class Maker {
 public:
  Maker(const NumberedPlan& numbered, const std::vector<StoredOutput>& stored,
        bool whole)
      : instructions_(numbered.instructions),
        first_constant_(numbered.first_constant),
        stored_(stored),
        whole_(whole),
        plan_(numbered.plan),
        elements_(plan_.steps.size()),
        fused_(plan_.steps.size()),
        stores_elements_(plan_.outputs.size()) {}

  void Run() {
    FuseLoads();
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      if (fused_[k]) continue;
      const Step& step = plan_.steps[k];
      if (Native(k)) {
        run_.push_back(k);
        if (run_.size() == kLongestRun) Flush();
        continue;
      }
      // Steps that load an operand may be moved before the run.
      if (instructions_[k] != nullptr || step.fn == CopyBlock ||
          Touches(step)) {
        Flush();
      }
      if (instructions_[k] == nullptr && HasHome(step)) {
        home_[step.d] = SourceOf(step).home;
      }
      steps_.push_back(step);
    }
    Flush();
    if (failed_ || native_.empty()) return;
    plan_.steps = std::move(steps_);
    plan_.native = std::move(native_);
    plan_.streams = streams_;
    plan_.nanoseconds -= saved_;
    for (size_t j = 0; j < stores_elements_.size(); ++j) {
      if (!stores_elements_[j]) continue;
      plan_.outputs[j].elements = true;
      plan_.outputs[j].width = ItemSize(stored_[j].dtype);
    }
  }

 private:
  bool Native(size_t k) const {
    return instructions_[k] != nullptr && IsNative(*instructions_[k]);
  }
  std::span<const uint16_t> Operands(size_t k) const {
    size_t count = plan_.steps[k].fn == CopyBlock ? 1 : 0;
    if (instructions_[k] != nullptr)
      count = instructions_[k]->operands().size();
    return {plan_.steps[k].operands, count};
  }
  bool Reads(size_t k, uint16_t slot) const {
    const auto operands = Operands(k);
    return std::count(operands.begin(), operands.end(), slot) > 0;
  }
  bool IsOutput(uint16_t slot) const { return Outputs(slot) > 0; }
  int64_t Outputs(uint16_t slot) const {
    return std::count_if(plan_.outputs.begin(), plan_.outputs.end(),
                         [slot](const Output& o) { return o.slot == slot; });
  }

  // Whether the value in `slot` is used after step k.
  bool NeededAfter(size_t k, uint16_t slot) const {
    for (size_t later = k + 1; later < plan_.steps.size(); ++later) {
      if (Reads(later, slot)) return true;
      if (plan_.steps[later].d == slot) return false;
    }
    return IsOutput(slot);
  }

  // Dense operands that are read only by machine code need no load step.
  void FuseLoads() {
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      const Step& step = plan_.steps[k];
      if (step.fn != PointAtOperand && step.fn != LoadDense) continue;
      const Source& source = SourceOf(step);
      std::vector<size_t> readers;
      bool only_native = true, redefined = false;
      for (size_t later = k + 1; later < plan_.steps.size(); ++later) {
        if (Reads(later, step.d)) {
          readers.push_back(later);
          only_native &= Native(later);
        }
        redefined = plan_.steps[later].d == step.d;
        if (redefined || !only_native) break;
      }
      if (!only_native || (!redefined && IsOutput(step.d))) continue;
      fused_[k] = true;
      for (size_t reader : readers) {
        for (size_t i = 0; i < Operands(reader).size(); ++i) {
          if (Operands(reader)[i] == step.d) elements_[reader][i] = &source;
        }
      }
    }
  }

  static bool HasHome(const Step& source) {
    return source.fn == PointIntoRow || source.fn == PointIntoPanel ||
           source.fn == PointIntoPattern;
  }

  // Whether a source's step uses a slot that the run reads or writes, or the
  // buffer that such a slot points into.
  bool Touches(const Step& source) const {
    const auto uses = [&](uint16_t slot) {
      return std::any_of(run_.begin(), run_.end(), [&](size_t k) {
        const auto operands = Operands(k);
        return plan_.steps[k].d == slot ||
               std::any_of(operands.begin(), operands.end(), [&](uint16_t o) {
                 const auto home = home_.find(o);
                 return o == slot ||
                        (home != home_.end() && home->second == slot);
               });
      });
    };
    return uses(source.d) || (HasHome(source) && uses(SourceOf(source).home));
  }

  void Flush() {
    const std::vector<size_t> run = std::exchange(run_, {});
    if (!run.empty()) Compile(run);
  }

  // Compiles a run; splits it in two if the registers do not suffice.
  void Compile(std::span<const size_t> run) {
    if (failed_) return;
    const NativeValues made = Values(run);
    const std::span<const NativeValue> values = made.values();
    const std::vector<uint8_t> bytes =
        CompileNative(values, whole_ ? plan_.size : 0);
    if (bytes.empty()) {
      if (run.size() == 1) {
        failed_ = true;
        return;
      }
      Compile(run.first(run.size() / 2));
      return Compile(run.subspan(run.size() / 2));
    }
    NativeRun native{PlaceCode(bytes), {}};
    failed_ |= native.code == nullptr;
    for (const NativeValue& v : values) {
      const bool in_slot =
          v.kind == NativeValue::kInvariant || v.kind == NativeValue::kBlock;
      if (in_slot) native.slots.push_back(v.slot);
      if (v.stored < 0) continue;
      native.slots.push_back(static_cast<uint16_t>(v.stored));
      streams_ |= v.streams;
      for (size_t j = 0;
           j < plan_.outputs.size() && v.stored_dtype != DType::kNone; ++j) {
        if (plan_.outputs[j].slot == v.stored) stores_elements_[j] = true;
      }
    }
    for (size_t k : run) {
      saved_ += (1 - kNativeShare) * StepCost(*instructions_[k]);
    }
    Step step{};
    step.fn = RunNative;
    step.d = static_cast<uint16_t>(native_.size());
    step.payload = CodeOf(native.code);
    steps_.push_back(step);
    native_.push_back(std::move(native));
  }

  NativeValues Values(std::span<const size_t> run) const {
    NativeValues values;
    for (size_t k : run) {
      const Step& step = plan_.steps[k];
      const auto slots = Operands(k);
      int operands[3];
      for (size_t i = 0; i < slots.size(); ++i) {
        const Source* source = elements_[k][i];
        const uint32_t width = OperandBytes(*instructions_[k], i);
        operands[i] = source != nullptr
                          ? values.Elements(*source, width)
                          : values.InSlot(slots[i], width, !step.moves[i]);
      }
      values.Compute(*instructions_[k], {operands, slots.size()}, step.d);
    }
    for (size_t k = 0; k < values.values().size(); ++k) {
      if (values[k].kind == NativeValue::kInvariant) Describe(values[k]);
    }
    for (const auto& [slot, number] : values.in_slot()) {
      NativeValue& value = values[number];
      if (value.kind != NativeValue::kComputed) continue;
      if (!NeededAfter(run.back(), slot)) continue;
      value.stored = slot;
      const StoredOutput stored = Stored(run.back(), slot);
      value.streams = stored.streams;
      if (FindStore(stored.dtype) != nullptr) value.stored_dtype = stored.dtype;
      value.moved = IsMoved(slot);
    }
    return values;
  }

  // Sets what is known about an invariant.
  void Describe(NativeValue& invariant) const {
    const size_t constant = size_t{invariant.slot} - first_constant_;
    if (invariant.slot >= first_constant_ &&
        constant < plan_.constants.size()) {
      invariant.constant = plan_.constants[constant].bytes;
    }
    for (const Step& step : plan_.uniform_steps) {
      if (step.fn == LoadUniform && step.d == invariant.slot) {
        invariant.loaded_dtype = SourceOf(step).dtype;
      }
    }
  }

  bool IsMoved(uint16_t slot) const {
    return std::any_of(
        plan_.outputs.begin(), plan_.outputs.end(),
        [slot](const Output& o) { return o.slot == slot && o.moved; });
  }

  // How an output that is only stored can be stored directly.
  StoredOutput Stored(size_t k, uint16_t slot) const {
    if (Outputs(slot) != 1) return {};
    for (size_t later = k + 1; later < plan_.steps.size(); ++later) {
      if (Reads(later, slot)) return {};
    }
    for (size_t j = 0; j < plan_.outputs.size(); ++j) {
      const Output& output = plan_.outputs[j];
      if (output.slot == slot && output.way == Output::kDirect) {
        return stored_[j];
      }
    }
    return {};
  }

  const std::span<const Instruction* const> instructions_;
  const uint16_t first_constant_;
  const std::vector<StoredOutput>& stored_;
  const bool whole_;
  Plan& plan_;
  // For each step, the operands that machine code reads from memory.
  std::vector<std::array<const Source*, 3>> elements_;
  std::vector<bool> fused_;
  std::map<uint16_t, uint16_t> home_;  // the buffer that each slot points into
  std::vector<size_t> run_;
  std::vector<Step> steps_;
  std::vector<NativeRun> native_;
  std::vector<bool> stores_elements_;
  double saved_ = 0;
  bool streams_ = false;
  bool failed_ = false;
};

}  // namespace

void RunNative(const Step& s, const Frame& f) { PayloadOf<NativeFn>(s)(f); }

void MakeNative(const NumberedPlan& numbered,
                const std::vector<StoredOutput>& stored, bool whole) {
  Maker(numbered, stored, whole).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
