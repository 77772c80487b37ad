#include "jaxlib/ipu/runtime/model/kernels/register_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/step_cost.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::NumOperands;
using program::Opcode;
using program::RegisterBytes;
using program::RegisterCode;
using program::RegisterType;

// What the values of a block may take of the first-level cache, and how long a
// block is at least and at most.
constexpr int64_t kCacheBytes = 20 << 10;
constexpr int64_t kShortestBlock = 64;
constexpr int64_t kLongestBlock = 2048;

// A row that repeats is laid out once, a block longer than itself, if it is no
// longer than this.
constexpr int64_t kLongestPattern = 512;
constexpr int kMostPatterns = 3;

// Whether an operand and a result may be the same storage. Only donated
// arguments (bases 2 and up) share theirs with results of another base.
bool MayShare(const View& operand, const View& result) {
  if (operand.base == result.base) return operand.offset == result.offset;
  return operand.base >= 2 && result.base >= 2;
}

// --- The planner
// --------------------------------------------------------------

constexpr size_t kForever = std::numeric_limits<size_t>::max();

// Where a value lives, before slots are numbered.
struct Place {
  enum Kind : uint8_t {
    kNone,
    kCell,
    kNarrow,
    kWide,
    kPattern,
    kPanel,
    kConstant,
    kMoving,
  };
  Kind kind = kNone;
  uint16_t index = 0;
};

class Planner {
 public:
  Planner(RegisterCode code, const Surroundings& surroundings, Plan* plan)
      : program_(std::move(code)), around_(surroundings), plan_(*plan) {}

  Status Run();

 private:
  struct Value {
    bool uniform = false;
    bool brought = false;  // a source whose step is there
    size_t last_use = 0;   // index of the last instruction that reads it
    Place place;
    Place buffer;     // to give back together with the value
    int output = -1;  // the output that it is written to directly
  };
  struct PendingStep {
    Step step;
    Place d;
    Place operands[3];
    bool uniform;
  };
  struct Buffers {  // registers of one width
    uint16_t count = 0;
    std::vector<uint16_t> free;
  };

  Status CheckLoads();
  void ForwardAliases();
  void Classify();
  void PlanOutputs();
  void FindDirectOutputs();
  Status EmitAll();
  Status Emit(size_t at);
  void BringOperands(const Instruction& i);
  void Bring(uint16_t value);
  void BringLoad(uint16_t value);
  void BringIota(uint16_t value);
  void FoldConstant(uint16_t value);
  void KeepLoadedOutputs();
  void FinishOutputs();
  void Number();

  bool MayOverwrite(size_t output, uint64_t operand) const;
  bool single() const { return plan_.size == 1 && around_.operands; }
  bool IsSource(uint16_t value) const {
    return NumOperands(program_.code[value].op) == 0;
  }
  uint32_t WidthOf(uint16_t value) const {
    return RegisterBytes(program::ResultType(program_.code[value]));
  }
  Place NewConstant(const void* bits, uint32_t width);
  Place NewCell() { return {Place::kCell, cells_++}; }
  Place NewMoving() { return {Place::kMoving, moving_++}; }
  Place NewRegister(uint32_t width);
  void Release(Place place);
  void Add(StepFn fn, Place d, uint64_t imm, bool uniform) {
    PendingStep pending{};
    pending.step.fn = fn;
    pending.step.imm = imm;
    pending.d = d;
    pending.uniform = uniform;
    steps_.push_back(pending);
  }
  void Charge(double nanoseconds) { plan_.nanoseconds += nanoseconds; }

  RegisterCode program_;
  const Surroundings& around_;
  Plan& plan_;
  std::vector<Value> values_;
  std::vector<PendingStep> steps_;
  std::vector<Place> output_places_;  // of those written directly
  std::vector<Place> output_values_;  // of the others, while a block is run
  std::vector<Place> output_homes_;
  std::vector<Source*> pattern_sources_;
  std::vector<Source*> panel_sources_;
  std::vector<std::pair<Source*, Place>> homes_;
  uint16_t cells_ = 0;
  uint16_t moving_ = 0;
  Buffers narrow_;
  Buffers wide_;
  uint32_t moving_bytes_ = 0;  // of an element of what is read in place
};

Status Planner::CheckLoads() {
  if (!around_.operands) return Status();
  for (const Instruction& i : program_.code) {
    if (i.op != Opcode::kLoad) continue;
    const uint8_t dtype = (*around_.operands)[i.imm].view.dtype;
    if (program::RegisterTypeOf(dtype) != i.type) {
      return DataLoss("malformed register program: operand " +
                      std::to_string(i.imm) + " of element type " +
                      std::to_string(dtype) + " is loaded as register type " +
                      std::to_string(static_cast<int>(i.type)));
    }
  }
  return Status();
}

// Values that are others under another name: bits seen as another type, the
// same operand loaded again.
void Planner::ForwardAliases() {
  std::vector<uint16_t> name(program_.code.size());
  std::vector<int> loaded(program_.code.size(), -1);
  std::vector<std::pair<uint64_t, uint16_t>> loads;
  for (size_t at = 0; at < name.size(); ++at) {
    Instruction& i = program_.code[at];
    uint16_t* operands[] = {&i.a, &i.b, &i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) {
      *operands[k] = name[*operands[k]];
    }
    name[at] = static_cast<uint16_t>(at);
    if (i.op == Opcode::kBitcast) name[at] = i.a;
    if (i.op == Opcode::kLoad) {
      const auto found =
          std::find_if(loads.begin(), loads.end(),
                       [&](const auto& load) { return load.first == i.imm; });
      if (found != loads.end()) {
        name[at] = found->second;
      } else {
        loads.push_back({i.imm, name[at]});
      }
    }
  }
  for (uint16_t& value : program_.outputs) value = name[value];
}

void Planner::Classify() {
  std::vector<bool> uniform;
  if (around_.operands) {
    for (const Operand& operand : *around_.operands) {
      uniform.push_back(Walk(around_.shape, operand).uniform());
    }
  } else {
    uniform.assign(around_.num_operands, false);
  }
  program::Simplify(program_, uniform);
  ForwardAliases();
  values_.resize(program_.code.size());
  const std::vector<bool> values = program::UniformValues(program_, uniform);
  for (size_t at = 0; at < values_.size(); ++at) {
    values_[at].uniform = values[at] || single();
    const Instruction& i = program_.code[at];
    if (i.op == Opcode::kBitcast) continue;
    const uint16_t operands[] = {i.a, i.b, i.c};
    for (int k = 0; k < NumOperands(i.op); ++k) {
      values_[operands[k]].last_use = at;
    }
  }
  for (uint16_t value : program_.outputs) values_[value].last_use = kForever;
}

// Whether an operand's elements may be gone once an output is written.
bool Planner::MayOverwrite(size_t output, uint64_t operand) const {
  if (!around_.operands) return true;
  return around_.results && MayShare((*around_.operands)[operand].view,
                                     (*around_.results)[output].view);
}

// An output's value is written where the output goes if nothing that is read
// later may lie there.
void Planner::FindDirectOutputs() {
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    Value& value = values_[at];
    if (value.uniform || IsSource(at) || value.output >= 0) continue;
    bool safe = true;
    for (size_t k = 0; k < values_.size(); ++k) {
      const Instruction& load = program_.code[k];
      if (load.op != Opcode::kLoad || values_[k].last_use <= at) continue;
      safe &= !MayOverwrite(j, load.imm);
    }
    if (safe) value.output = static_cast<int>(j);
  }
}

Place Planner::NewConstant(const void* bits, uint32_t width) {
  Cell& cell = plan_.constants.emplace_back();
  for (int64_t i = 0; i < kUniformLanes; ++i) {
    std::memcpy(cell.bytes + i * width, bits, width);
  }
  return {Place::kConstant, static_cast<uint16_t>(plan_.constants.size() - 1)};
}

Place Planner::NewRegister(uint32_t width) {
  Buffers& buffers = width == 8 ? wide_ : narrow_;
  const Place::Kind kind = width == 8 ? Place::kWide : Place::kNarrow;
  if (buffers.free.empty()) return {kind, buffers.count++};
  const uint16_t index = buffers.free.back();
  buffers.free.pop_back();
  return {kind, index};
}

void Planner::Release(Place place) {
  if (place.kind == Place::kNarrow) narrow_.free.push_back(place.index);
  if (place.kind == Place::kWide) wide_.free.push_back(place.index);
}

void Planner::BringIota(uint16_t at) {
  const Instruction& i = program_.code[at];
  Value& value = values_[at];
  if (value.uniform) {
    const uint64_t zero = 0;
    value.place = NewConstant(&zero, WidthOf(at));
    return;
  }
  int64_t inner = 1;
  for (size_t d = i.imm + 1; d < around_.shape.size(); ++d) {
    inner *= around_.shape[d];
  }
  static const Operand kNoOperand;
  Source& source = plan_.sources.emplace_back(
      Source{Walk({}, kNoOperand), nullptr, WidthOf(at)});
  source.inner = inner;
  source.extent = around_.shape[i.imm];
  value.place = NewRegister(source.width);
  Add(FindIota(i.type), value.place, reinterpret_cast<uint64_t>(&source),
      false);
  Charge(0.1);
}

void Planner::BringLoad(uint16_t at) {
  const Instruction& i = program_.code[at];
  Value& value = values_[at];
  const uint32_t width = WidthOf(at);
  if (!around_.operands) {
    value.place = NewMoving();
    plan_.block_operands.push_back(
        {static_cast<uint16_t>(i.imm), value.place.index, width});
    moving_bytes_ += width;
    return;
  }
  const Operand& operand = (*around_.operands)[i.imm];
  Source& source = plan_.sources.emplace_back(Source{
      Walk(around_.shape, operand), FindLoad(operand.view.dtype), width});
  const auto imm = reinterpret_cast<uint64_t>(&source);
  const bool in_place = source.convert == nullptr;
  const int64_t period = source.walk.period();
  if (value.uniform && !single()) {
    value.place = NewCell();
    Add(LoadUniform, value.place, imm, true);
  } else if (in_place && source.walk.dense()) {
    value.place = NewMoving();
    moving_bytes_ += width;
    Add(PointAtOperand, value.place, imm, value.uniform);
    Charge(0.01 * width);
  } else if (source.walk.dense()) {
    value.place = value.uniform ? NewCell() : NewRegister(width);
    Add(LoadDense, value.place, imm, value.uniform);
    Charge(0.02 * width);
  } else if (period > 0 && period <= kLongestPattern &&
             pattern_sources_.size() < kMostPatterns) {
    source.period = period;
    source.pattern = true;
    homes_.push_back(
        {&source,
         {Place::kPattern, static_cast<uint16_t>(pattern_sources_.size())}});
    pattern_sources_.push_back(&source);
    value.place = NewMoving();
    moving_bytes_ += width;
    Add(PointIntoPattern, value.place, imm, false);
  } else if (period > 0 && in_place) {
    source.period = period;
    value.buffer = NewRegister(width);
    homes_.push_back({&source, value.buffer});
    value.place = NewMoving();
    Add(PointIntoRow, value.place, imm, false);
    Charge(0.01 * width);
  } else if (const int64_t rows = PanelRows(source.walk); rows > 0) {
    source.panel_rows = rows;
    panel_sources_.push_back(&source);
    value.buffer = NewRegister(width);
    homes_.push_back({&source, value.buffer});
    value.place = NewMoving();
    moving_bytes_ += width;
    Add(PointIntoPanel, value.place, imm, false);
    Charge(0.1 * width);
  } else {
    value.place = NewRegister(width);
    Add(LoadGather, value.place, imm, false);
    Charge(0.5);
  }
}

void Planner::Bring(uint16_t at) {
  Value& value = values_[at];
  if (value.brought || !IsSource(at)) return;
  value.brought = true;
  const Instruction& i = program_.code[at];
  if (i.op == Opcode::kConst) {
    value.place = NewConstant(&i.imm, WidthOf(at));
  } else if (i.op == Opcode::kIota) {
    BringIota(at);
  } else {
    BringLoad(at);
  }
}

// Computes a value of constants now.
void Planner::FoldConstant(uint16_t at) {
  const Instruction& i = program_.code[at];
  const uint64_t zero = 0;
  values_[at].place = NewConstant(&zero, 8);
  Step step{};
  step.d = 0;
  step.imm = i.imm;
  char* slots[4] = {plan_.constants.back().bytes};
  const uint16_t operands[] = {i.a, i.b, i.c};
  for (int k = 0; k < NumOperands(i.op); ++k) {
    step.operands[k] = static_cast<uint16_t>(k + 1);
    step.moves[k] = true;
    slots[k + 1] = plan_.constants[values_[operands[k]].place.index].bytes;
  }
  FindStep(i)(step, Frame{slots, nullptr, nullptr, 0, kUniformLanes});
}

Status Planner::Emit(size_t at) {
  const Instruction& i = program_.code[at];
  Value& value = values_[at];
  const uint16_t operands[] = {i.a, i.b, i.c};
  const int n = NumOperands(i.op);
  PendingStep pending{};
  pending.step.fn = FindStep(i);
  if (pending.step.fn == nullptr) {
    return Internal(
        "no step for opcode " + std::to_string(static_cast<int>(i.op)) +
        " of register type " + std::to_string(static_cast<int>(i.type)));
  }
  pending.step.imm = i.imm;
  pending.uniform = value.uniform;
  bool constant = true;
  for (int k = 0; k < n; ++k) {
    Bring(operands[k]);
    pending.operands[k] = values_[operands[k]].place;
    pending.step.moves[k] = !values_[operands[k]].uniform || value.uniform;
    constant &= values_[operands[k]].place.kind == Place::kConstant;
  }
  if (constant) {
    FoldConstant(static_cast<uint16_t>(at));
    return Status();
  }
  for (int k = 0; k < n; ++k) {
    Value& operand = values_[operands[k]];
    const bool again = (k > 0 && operands[k] == operands[0]) ||
                       (k > 1 && operands[k] == operands[1]);
    if (operand.last_use == at && !again && !value.uniform) {
      Release(operand.place);
      Release(operand.buffer);
    }
  }
  if (value.uniform) {
    value.place = NewCell();
  } else if (value.output >= 0) {
    value.place = output_places_[value.output];
  } else {
    value.place = NewRegister(WidthOf(static_cast<uint16_t>(at)));
  }
  pending.d = value.place;
  steps_.push_back(pending);
  if (!value.uniform) Charge(StepCost(i));
  return Status();
}

Status Planner::EmitAll() {
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    output_places_.push_back(NewMoving());
    output_homes_.push_back({});
  }
  for (Value& value : values_) {
    if (value.output < 0) continue;
    const auto at = static_cast<uint16_t>(&value - values_.data());
    output_homes_[value.output] = NewRegister(WidthOf(at));
  }
  for (size_t at = 0; at < program_.code.size(); ++at) {
    const Instruction& i = program_.code[at];
    if (NumOperands(i.op) == 0 || i.op == Opcode::kBitcast) continue;
    IPU_RETURN_IF_ERROR(Emit(at));
  }
  for (uint16_t value : program_.outputs) Bring(value);
  KeepLoadedOutputs();
  return Status();
}

// Outputs that are not written directly are copied one after the other. An
// operand that is itself an output is put aside if one before it may overwrite
// it.
void Planner::KeepLoadedOutputs() {
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    const Value& value = values_[at];
    output_values_.push_back(value.place);
    if (value.place.kind != Place::kMoving || !IsSource(at)) continue;
    bool overwritten = false;
    for (size_t i = 0; i < j; ++i) {
      overwritten |=
          program_.outputs[i] != at && MayOverwrite(i, program_.code[at].imm);
    }
    if (!overwritten) continue;
    PendingStep copy{};
    copy.step.fn = CopyBlock;
    copy.step.imm = WidthOf(at);
    copy.operands[0] = value.place;
    copy.d = value.uniform ? NewCell() : NewRegister(WidthOf(at));
    copy.uniform = value.uniform;
    output_values_[j] = copy.d;
    steps_.push_back(copy);
  }
}

// Gives places their slots and a state its layout.
void Planner::Number() {
  const int64_t element = 4 * narrow_.count + 8 * wide_.count + moving_bytes_;
  int64_t block = kCacheBytes / std::max<int64_t>(element, 1) / 64 * 64;
  block = std::clamp(block, kShortestBlock, kLongestBlock);
  if (around_.operands) {
    block = std::min(block, std::max<int64_t>((plan_.size + 63) / 64 * 64, 64));
  }
  plan_.block = block;

  const size_t first_narrow = cells_;
  const size_t first_wide = first_narrow + narrow_.count;
  const size_t first_pattern = first_wide + wide_.count;
  const size_t first_panel = first_pattern + pattern_sources_.size();
  const size_t first_constant = first_panel + panel_sources_.size();
  const size_t first_moving = first_constant + plan_.constants.size();
  plan_.num_slots = first_moving + moving_;

  size_t bytes = (plan_.num_slots * sizeof(char*) + 63) / 64 * 64;
  const auto own = [&](size_t count, size_t size) {
    for (size_t k = 0; k < count; ++k) {
      plan_.offsets.push_back(static_cast<uint32_t>(bytes));
      bytes += (size + 63) / 64 * 64;
    }
  };
  own(cells_, kUniformBytes);
  own(narrow_.count, block * 4 + kSlackBytes);
  own(wide_.count, block * 8 + kSlackBytes);
  for (const Source* source : pattern_sources_) {
    own(1, (source->period + block) * source->width + kSlackBytes);
  }
  for (Source* source : panel_sources_) {
    const Walk& walk = source->walk;
    const int64_t elements = source->panel_rows * walk.columns();
    source->panel = static_cast<uint16_t>(plan_.offsets.size());
    plan_.grain = std::max(plan_.grain, elements);
    own(1, sizeof(PanelHeader) + elements * walk.item_size());
  }
  plan_.staging = bytes;
  const bool staged = std::any_of(
      plan_.sources.begin(), plan_.sources.end(),
      [](const Source& source) { return source.convert != nullptr; });
  if (staged) bytes += block * 2 + kSlackBytes;
  plan_.bytes = bytes;

  const auto slot = [&](Place place) -> uint16_t {
    const size_t first[] = {0,
                            0,
                            first_narrow,
                            first_wide,
                            first_pattern,
                            first_panel,
                            first_constant,
                            first_moving};
    return static_cast<uint16_t>(first[place.kind] + place.index);
  };
  for (PendingStep& pending : steps_) {
    pending.step.d = slot(pending.d);
    for (int k = 0; k < 3; ++k) {
      pending.step.operands[k] = slot(pending.operands[k]);
    }
    // Operands of an empty space may have no storage.
    if (plan_.size == 0) continue;
    (pending.uniform ? plan_.uniform_steps : plan_.steps)
        .push_back(pending.step);
    if (!single()) continue;
    if (pending.step.fn == PointAtOperand) {
      const Walk& walk = SourceOf(pending.step).walk;
      plan_.in_place.push_back(
          {pending.step.d, walk.base(), walk.offset(), walk.item_size()});
    } else {
      plan_.one_steps.push_back(pending.step);
    }
  }
  for (auto& [source, place] : homes_) source->home = slot(place);
  for (BlockOperand& operand : plan_.block_operands) {
    operand.slot = slot({Place::kMoving, operand.slot});
  }
  for (size_t j = 0; j < plan_.outputs.size(); ++j) {
    Output& output = plan_.outputs[j];
    output.slot = slot(output_values_[j]);
    output.home = slot(output_homes_[j]);
  }
}

void Planner::FinishOutputs() {
  for (size_t j = 0; j < plan_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    const Value& value = values_[at];
    Output& output = plan_.outputs[j];
    output.way = value.output == static_cast<int>(j) ? Output::kDirect
                 : value.uniform                     ? Output::kUniform
                                                     : Output::kCopied;
    if (output.way == Output::kUniform) {
      // The caller may want it in a block of our own.
      output_homes_[j] = NewRegister(output.width);
    }
    if (output.way != Output::kDirect) Charge(0.01 * output.width);
    const Instruction& i = program_.code[at];
    if (i.op == Opcode::kLoad && i.type == output.type &&
        (!around_.operands ||
         FindLoad((*around_.operands)[i.imm].view.dtype) == nullptr)) {
      output.operand = static_cast<int>(i.imm);
    }
  }
}

void Planner::PlanOutputs() {
  for (uint16_t value : program_.outputs) {
    Output output{};
    output.type = program::ResultType(program_.code[value]);
    output.width = RegisterBytes(output.type);
    plan_.outputs.push_back(output);
  }
}

Status Planner::Run() {
  plan_.size = 1;
  for (int64_t extent : around_.shape) plan_.size *= extent;
  IPU_RETURN_IF_ERROR(CheckLoads());
  PlanOutputs();
  Classify();
  FindDirectOutputs();
  IPU_RETURN_IF_ERROR(EmitAll());
  FinishOutputs();
  if (cells_ + narrow_.count + wide_.count + plan_.constants.size() + moving_ +
          pattern_sources_.size() + panel_sources_.size() >
      std::numeric_limits<uint16_t>::max()) {
    return Unimplemented("a register program of " +
                         std::to_string(program_.code.size()) +
                         " instructions has too many values at once");
  }
  Number();
  return Status();
}

}  // namespace

Status MakePlan(RegisterCode code, const Surroundings& surroundings,
                Plan* plan) {
  return Planner(std::move(code), surroundings, plan).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
