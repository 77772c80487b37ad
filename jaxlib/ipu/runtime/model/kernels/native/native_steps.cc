#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step_cost.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_sources.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;

// The most steps in a run. A guess: longer ones rarely fit into the registers.
constexpr size_t kLongestRun = 120;

// The time of compiled steps relative to interpreted ones. A guess.
constexpr double kNativeShare = 0.3;

// Machine code shuffles lanes in spaces of more elements than this; smaller
// ones are recorded in loops (AreFewElements), or are copied. A guess.
constexpr int64_t kFewElements = 64;
// A limit: indices are computed in 32 bits.
constexpr int64_t kMostIndices = int64_t{1} << 31;
// ... and so saves this much of what a copied element is charged. A guess.
constexpr double kShuffledSaves = 0.4;

class Maker {
 public:
  Maker(const NumberedPlan& numbered, const std::vector<StoredOutput>& stored,
        bool whole)
      : instructions_(numbered.instructions),
        first_instruction_(numbered.first_instruction),
        sides_(numbered.sides),
        first_constant_(numbered.first_constant),
        stored_(stored),
        whole_(whole),
        plan_(numbered.plan),
        lanes_(LanesOf(numbered.instructions)),
        elements_(plan_.steps.size()),
        fused_(plan_.steps.size()),
        stores_elements_(plan_.outputs.size()),
        alternates_(plan_.outputs.size()),
        side_steps_(sides_.size()) {
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      if (const auto side = SideOf(k)) ++side_steps_[*side];
    }
  }

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
    for (const Source* source : shuffled_) FinishShuffled(source);
    for (size_t j = 0; j < stores_elements_.size(); ++j) {
      if (!stores_elements_[j]) continue;
      plan_.outputs[j].elements = true;
      plan_.outputs[j].width = ItemSize(stored_[j].dtype);
    }
    for (size_t j = 0; j < alternates_.size(); ++j) {
      if (alternates_[j] < 2) continue;
      plan_.outputs[j].alternates = true;
      plan_.outputs[j].width *= static_cast<uint32_t>(alternates_[j]);
    }
  }

 private:
  // The fewest lanes of the program's vectors.
  static int LanesOf(std::span<const Instruction* const> instructions) {
    const auto is_wide = [](const Instruction* i) {
      if (i == nullptr) return false;
      bool wide = program::RegisterBytes(i->type) == 8;
      for (size_t k = 0; k < i->operands().size(); ++k) {
        wide |= OperandBytes(*i, k) == 8;
      }
      return wide;
    };
    return std::any_of(instructions.begin(), instructions.end(), is_wide)
               ? kLanes<uint64_t>
               : kLanes<uint32_t>;
  }

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

  // Whether machine code can shuffle the lanes of an operand. Then blocks begin
  // at multiples of plan_.group.
  bool CanShuffle(const Step& step) {
    const bool copied = step.fn == LoadGather || step.fn == PointIntoPattern;
    if (!copied || plan_.size <= kFewElements) return false;
    const StridedIterator& iterator = SourceOf(step).iterator;
    const int64_t vectors = VectorsInGroup(iterator, lanes_, group_);
    if (vectors == 0) return false;
    const int64_t elements =
        std::lcm(iterator.group(), int64_t{kLanes<uint8_t>});
    if (iterator.group() > 1) {
      if (!whole_ || (plan_.row > 0 && plan_.row % elements != 0)) return false;
      plan_.group = std::lcm(plan_.group, elements);
    }
    group_ = vectors * lanes_;
    return true;
  }

  // The type of the numbers of all elements, if a step loads these.
  std::optional<program::RegisterType> IndexOf(const Step& step) const {
    const auto type = TypeOfIota(step.fn);
    if (!type || plan_.size > kMostIndices || SourceOf(step).inner != 1 ||
        SourceOf(step).extent != plan_.size) {
      return std::nullopt;
    }
    return type;
  }

  // Operands that are read only by machine code need no load step if they are
  // dense or it can shuffle their lanes, nor do the numbers of elements.
  void FuseLoads() {
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      const Step& step = plan_.steps[k];
      const bool loads = step.fn == PointAtOperand || step.fn == LoadDense ||
                         step.fn == LoadGather || step.fn == PointIntoPattern;
      if (!loads && !IndexOf(step)) continue;
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
      if (loads && !source.iterator.dense()) {
        if (!CanShuffle(step)) continue;
        shuffled_.push_back(&source);
      }
      if (const auto index = IndexOf(step)) indices_[&source] = *index;
      fused_[k] = true;
      for (size_t reader : readers) {
        for (size_t i = 0; i < Operands(reader).size(); ++i) {
          if (Operands(reader)[i] == step.d) elements_[reader][i] = &source;
        }
      }
    }
  }

  // Nothing is kept in a buffer for an operand that is read in place.
  void FinishShuffled(const Source* source) {
    if (!source->pattern) plan_.nanoseconds -= kShuffledSaves;
    for (Source& own : plan_.sources) {
      if (&own == source) own.pattern = false;
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

  // The number of a step's instruction in the program.
  size_t NumberOf(size_t k) const {
    return instructions_[k] - first_instruction_;
  }
  // The first side of the program that does not end before an instruction.
  size_t SideFrom(size_t instruction) const {
    const auto at = std::partition_point(
        sides_.begin(), sides_.end(),
        [&](const program::RareSide& s) { return s.end <= instruction; });
    return at - sides_.begin();
  }
  // The side that has a step.
  std::optional<size_t> SideOf(size_t k) const {
    if (instructions_[k] == nullptr) return std::nullopt;
    const size_t side = SideFrom(NumberOf(k));
    if (side == sides_.size() || NumberOf(k) < sides_[side].begin) {
      return std::nullopt;
    }
    return side;
  }

  // Compiles a run; splits it in two if the registers do not suffice.
  void Compile(std::span<const size_t> run) {
    if (failed_) return;
    std::vector<ValueSide> sides;
    const NativeValues made = Values(run, sides);
    const std::span<const NativeValue> values = made.values();
    const std::vector<uint8_t> bytes =
        CompileNative(values, sides, whole_ ? plan_.size : 0);
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
      for (size_t j = 0; j < plan_.outputs.size(); ++j) {
        if (plan_.outputs[j].slot != v.stored) continue;
        if (v.stored_dtype != DType::kNone) stores_elements_[j] = true;
        alternates_[j] = std::max(alternates_[j], v.alternates.size());
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

  // Also sets the sides that the run has.
  NativeValues Values(std::span<const size_t> run,
                      std::vector<ValueSide>& sides) const {
    NativeValues values;
    std::map<size_t, int> computed;  // by instruction
    for (size_t k : run) {
      const Step& step = plan_.steps[k];
      const auto slots = Operands(k);
      int operands[3];
      for (size_t i = 0; i < slots.size(); ++i) {
        const Source* source = elements_[k][i];
        const uint32_t width = OperandBytes(*instructions_[k], i);
        if (source == nullptr) {
          operands[i] = values.InSlot(slots[i], width, !step.moves[i]);
        } else if (const auto index = indices_.find(source);
                   index != indices_.end()) {
          operands[i] = values.Indices(*source, index->second);
        } else {
          operands[i] = values.Elements(*source, width);
        }
      }
      values.Compute(*instructions_[k], {operands, slots.size()}, step.d);
      computed[NumberOf(k)] = static_cast<int>(values.values().size()) - 1;
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
    for (size_t j = 0; j < stored_.size(); ++j) {
      if (stored_[j].alternate > 1) MakeAlternate(run, j, values);
    }
    for (size_t side = SideFrom(computed.begin()->first);
         side < sides_.size() && sides_[side].begin <= computed.rbegin()->first;
         ++side) {
      AddSide(side, computed, values.values(), sides);
    }
    return values;
  }

  // Adds a side if the run has all of it, and what decides whether it matters.
  void AddSide(size_t number, const std::map<size_t, int>& computed,
               std::span<const NativeValue> values,
               std::vector<ValueSide>& sides) const {
    const program::RareSide& side = sides_[number];
    const auto condition = computed.find(side.condition);
    const auto first = computed.lower_bound(side.begin);
    const auto end = computed.lower_bound(side.end);
    if (condition == computed.end() ||
        side_steps_[number] < int64_t{program::kFewestInSide} ||
        std::distance(first, end) != side_steps_[number]) {
      return;
    }
    const int last = std::prev(end)->second;
    for (int v = first->second; v <= last; ++v) {
      if (values[v].stored >= 0) return;
    }
    sides.push_back({condition->second, side.when, first->second, last + 1});
  }

  // Stores output j and the next ones together if the run computes all of them.
  void MakeAlternate(std::span<const size_t> run, size_t j,
                     NativeValues& values) const {
    const size_t count = stored_[j].alternate;
    if (!StoresAlternately(plan_.size, static_cast<int64_t>(count))) return;
    std::vector<int> all;
    for (size_t k = 0; k < count; ++k) {
      const Output& output = plan_.outputs[j + k];
      const auto found = values.in_slot().find(output.slot);
      if (output.way != Output::kDirect || found == values.in_slot().end() ||
          values[found->second].stored != output.slot ||
          !IsLast(run.back(), output.slot)) {
        return;
      }
      all.push_back(found->second);
    }
    const int last = *std::max_element(all.begin(), all.end());
    for (const int number : all) {
      NativeValue& value = values[number];
      value.alternates = all;
      value.streams = stored_[j].streams;
      if (number != last) value.last_use = std::max(value.last_use, last);
    }
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

  // Whether a slot is one output, and no step after k reads it.
  bool IsLast(size_t k, uint16_t slot) const {
    if (Outputs(slot) != 1) return false;
    for (size_t later = k + 1; later < plan_.steps.size(); ++later) {
      if (Reads(later, slot)) return false;
    }
    return true;
  }

  // How an output that is only stored can be stored directly.
  StoredOutput Stored(size_t k, uint16_t slot) const {
    if (!IsLast(k, slot)) return {};
    for (size_t j = 0; j < plan_.outputs.size(); ++j) {
      const Output& output = plan_.outputs[j];
      if (output.slot == slot && output.way == Output::kDirect) {
        return stored_[j];
      }
    }
    return {};
  }

  const std::span<const Instruction* const> instructions_;
  const Instruction* const first_instruction_;
  const std::span<const program::RareSide> sides_;
  const uint16_t first_constant_;
  const std::vector<StoredOutput>& stored_;
  const bool whole_;
  Plan& plan_;
  const int lanes_;
  int64_t group_ = 1;  // elements after which the places of lanes repeat
  // For each step, the operands that machine code reads from memory.
  std::vector<std::array<const Source*, 3>> elements_;
  std::vector<bool> fused_;
  std::map<uint16_t, uint16_t> home_;  // the buffer that each slot points into
  std::vector<size_t> run_;
  std::vector<Step> steps_;
  std::vector<NativeRun> native_;
  std::vector<bool> stores_elements_;
  std::vector<size_t> alternates_;  // how many are stored with an output
  // For each side, the steps that compute its values block by block.
  std::vector<int64_t> side_steps_;
  std::map<const Source*, program::RegisterType> indices_;
  std::vector<const Source*> shuffled_;  // operands whose lanes are shuffled
  double saved_ = 0;
  bool streams_ = false;
  bool failed_ = false;
};

}  // namespace

bool StoresAlternately(int64_t elements, int64_t spacing) {
  return elements > kFewElements && spacing >= 2 && spacing <= 4;
}

void RunNative(const Step& s, const Frame& f) { PayloadOf<NativeFn>(s)(f); }

void MakeNative(const NumberedPlan& numbered,
                const std::vector<StoredOutput>& stored, bool whole) {
  Maker(numbered, stored, whole).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
