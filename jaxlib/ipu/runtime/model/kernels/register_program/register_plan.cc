#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step_cost.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_builder.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_sources.h"
#include "jaxlib/ipu/runtime/program/register_narrow.h"
#include "jaxlib/ipu/runtime/program/register_rare.h"
#include "jaxlib/ipu/runtime/program/register_simplify.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;
using program::RegisterBytes;
using program::RegisterCode;

// A step's call costs as much as its work on about 100 elements, fewer for
// 64-bit ones. Blocks therefore end at rows of at least these lengths only;
// operands with shorter rows are expanded to whole blocks instead. Measured:
// crosses at 305 elements, and at 79 64-bit ones (AVX2, one core),
// `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kShortestRow, 384);
IPU_THRESHOLD(int64_t, kShortestWideRow, 128);

// Outputs that are stored together if they alternate; a guess: of more, each
// vector takes as many shuffles.
constexpr int64_t kMostAlternate = 4;

constexpr size_t kForever = std::numeric_limits<size_t>::max();

// Whether a result may be stored over an operand. Within one base, the offsets
// tell.
bool MayShare(const View& operand, const View& result) {
  if (operand.base == result.base) return operand.offset == result.offset;
  return MayAlias(operand.base, result.base);
}

// Replaces values that are aliases of others: bitcasts, and repeated loads of
// the same operand. A value may then be used as another type of its width than
// its instruction states.
void ForwardAliases(RegisterCode& program) {
  std::vector<uint16_t> name(program.code.size());
  std::vector<std::pair<uint64_t, uint16_t>> loads;
  for (size_t at = 0; at < name.size(); ++at) {
    Instruction& i = program.code[at];
    for (uint16_t& value : i.operands()) value = name[value];
    name[at] = static_cast<uint16_t>(at);
    if (i.op == Opcode::kBitcast) name[at] = i.values[0];
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
  for (uint16_t& value : program.outputs) value = name[value];
}

class Planner {
 public:
  Planner(RegisterCode code, const ProgramContext& context, Plan* plan)
      : program_(std::move(code)),
        context_(context),
        plan_(*plan),
        builder_(plan, /*function=*/context.operands == nullptr) {
    for (uint16_t value : program_.outputs) {
      output_types_.push_back(program::ResultType(program_.code[value]));
    }
  }

  Status Run();

 private:
  struct Value {
    Rate rate = Rate::kBlock;
    bool loaded = false;  // a source whose step has been added
    size_t last_use = 0;  // index of the last instruction that reads it
    Place place;
    Place buffer;     // released together with the value
    int output = -1;  // the output that the value is written to directly
  };
  // The places of an output.
  struct OutputPlaces {
    Place direct;  // the caller's memory, if a step writes there
    Place home;    // the buffer used if the caller provides no memory
    Place value;
  };

  Status CheckLoads();
  int64_t ChooseRow(const std::vector<StridedIterator>& iterators) const;
  void Classify();
  void FindMoved();
  void FindDirectOutputs();
  void PlanOutputs();
  void LoadSource(uint16_t value);
  void FoldConstant(uint16_t value);
  Status Emit(uint16_t value);
  void ReleaseOperands(uint16_t value);
  Status EmitAll();
  void PlaceOutputs();
  size_t NumAlternate(size_t j) const;
  std::vector<StoredOutput> StoredOutputs() const;
  void FinishOutputs();

  bool MayOverwrite(size_t output, uint64_t operand) const;
  bool IsSource(uint16_t value) const {
    return program::NumOperands(program_.code[value].op) == 0;
  }
  uint32_t WidthOf(uint16_t value) const {
    return RegisterBytes(program::ResultType(program_.code[value]));
  }

  RegisterCode program_;
  std::vector<program::RareSide> sides_;  // of the program
  const ProgramContext& context_;
  Plan& plan_;
  PlanBuilder builder_;
  std::vector<bool> moved_;  // see MovedValues
  std::vector<Value> values_;
  std::vector<program::RegisterType> output_types_;  // as the caller sees them
  std::vector<OutputPlaces> output_places_;
  std::vector<StoredOutput> stored_;
};

Status Planner::CheckLoads() {
  if (!context_.operands) return Status();
  for (const Instruction& i : program_.code) {
    if (i.op != Opcode::kLoad) continue;
    const DType dtype = (*context_.operands)[i.imm].view.dtype;
    if (program::RegisterTypeOf(dtype) != i.type) {
      return DataLoss("malformed register program: operand " +
                      std::to_string(i.imm) + " of element type " +
                      std::to_string(Number(dtype)) +
                      " is loaded as register type " +
                      std::to_string(static_cast<int>(i.type)));
    }
  }
  return Status();
}

// The length of the shortest row along which an operand is constant or after
// which it repeats, so that a block never has to be assembled from the end and
// the beginning of a row. 0 if there is none.
int64_t Planner::ChooseRow(
    const std::vector<StridedIterator>& iterators) const {
  int64_t row = 0;
  for (const StridedIterator& iterator : iterators) {
    if (iterator.uniform()) continue;
    const int64_t length = std::max(iterator.run(), iterator.period());
    const bool wide = iterator.item_size() == 8;
    if (length < (wide ? kShortestWideRow : kShortestRow)) continue;
    row = row > 0 ? std::min(row, length) : length;
  }
  return row;
}

// Sets how often each value is computed and when it is last used.
void Planner::Classify() {
  std::vector<bool> uniform(context_.num_operands, false), row = uniform;
  if (context_.operands) {
    std::vector<StridedIterator> iterators;
    for (const Operand& operand : *context_.operands) {
      iterators.emplace_back(context_.shape, operand);
    }
    plan_.row = ChooseRow(iterators);
    for (size_t k = 0; k < iterators.size(); ++k) {
      uniform[k] = iterators[k].uniform();
      row[k] = uniform[k] || (plan_.row && iterators[k].run() % plan_.row == 0);
    }
  }
  program::NarrowIntegers(program_, context_.shape);
  program::Simplify(program_, row);
  ForwardAliases(program_);
  sides_ = program::GatherRareSides(program_);
  FindMoved();
  values_.resize(program_.code.size());
  const std::vector<bool> once = program::UniformValues(program_, uniform);
  const std::vector<bool> in_row = program::UniformValues(program_, row);
  for (size_t at = 0; at < values_.size(); ++at) {
    if (in_row[at]) values_[at].rate = Rate::kRow;
    if (once[at] || builder_.single()) values_[at].rate = Rate::kOnce;
    const Instruction& i = program_.code[at];
    if (i.op == Opcode::kBitcast) continue;
    for (uint16_t value : i.operands()) values_[value].last_use = at;
  }
  for (uint16_t value : program_.outputs) values_[value].last_use = kForever;
}

void Planner::FindMoved() {
  std::vector<DType> dtypes(context_.num_operands);
  for (size_t k = 0; k < dtypes.size() && context_.operands; ++k) {
    dtypes[k] = (*context_.operands)[k].view.dtype;
  }
  moved_ = program::MovedValues(program_, dtypes);
}

// Whether writing an output may overwrite elements of an operand.
bool Planner::MayOverwrite(size_t output, uint64_t operand) const {
  if (!context_.operands) return true;
  return context_.results && MayShare((*context_.operands)[operand].view,
                                      (*context_.results)[output].view);
}

// Lets a value be written directly to its output if no operand that is read
// later may overlap it. Those that alternate are stored once all of them are
// known, or as others that are not dense: after the block.
void Planner::FindDirectOutputs() {
  size_t end = 0;  // of the outputs that are stored together
  uint16_t last = 0;
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    if (j >= end) {
      end = j + stored_[j].alternate;
      const auto first = program_.outputs.begin() + j;
      last = *std::max_element(first, first + stored_[j].alternate);
    }
    Value& value = values_[at];
    if (value.rate != Rate::kBlock || IsSource(at) || value.output >= 0) {
      continue;
    }
    bool safe = true;
    for (size_t k = 0; k < values_.size(); ++k) {
      const Instruction& load = program_.code[k];
      if (load.op != Opcode::kLoad || values_[k].last_use <= last) continue;
      safe &= !MayOverwrite(j, load.imm);
    }
    if (safe) value.output = static_cast<int>(j);
  }
}

void Planner::PlanOutputs() {
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    const Value& value = values_[at];
    Output output{};
    output.alternate = stored_[j].alternate;
    output.type = output_types_[j];
    output.width = RegisterBytes(output.type);
    output.moved = moved_[at];
    output.way = value.output == static_cast<int>(j) ? Output::kDirect
                 : value.rate != Rate::kBlock        ? Output::kUniform
                                                     : Output::kCopied;
    OutputPlaces places;
    if (output.way == Output::kDirect) {
      places.direct = builder_.NewMoving();
    } else {
      builder_.Charge(0.01 * output.width);
    }
    // With rows, the caller's range may take several blocks, and the outputs of
    // one must survive the steps of the next.
    if (output.way == Output::kDirect || plan_.row > 0) {
      places.home = builder_.NewRegister(output.width);
    }
    plan_.outputs.push_back(output);
    output_places_.push_back(places);
  }
}

void Planner::LoadSource(uint16_t at) {
  Value& value = values_[at];
  if (value.loaded || !IsSource(at)) return;
  value.loaded = true;
  const Instruction& i = program_.code[at];
  const uint32_t width = WidthOf(at);
  Loaded loaded;
  if (i.op == Opcode::kConst) {
    loaded.place = builder_.NewConstant(&i.imm, width);
  } else if (i.op == Opcode::kIota) {
    loaded = LoadIota(context_.shape, i, builder_);
  } else if (context_.operands) {
    loaded = LoadOperand(context_.shape, (*context_.operands)[i.imm], width,
                         moved_[at], value.rate, builder_);
  } else {
    loaded = LoadBlock(static_cast<uint16_t>(i.imm), width, builder_);
  }
  value.place = loaded.place;
  value.buffer = loaded.buffer;
}

// Evaluates an instruction whose operands are constants.
void Planner::FoldConstant(uint16_t at) {
  const Instruction& i = program_.code[at];
  const uint64_t zero = 0;
  values_[at].place = builder_.NewConstant(&zero, 8);
  Step step{};
  step.payload = i.imm;
  char* slots[4] = {builder_.ConstantBytes(values_[at].place)};
  int k = 0;
  for (uint16_t value : i.operands()) {
    step.moves[k] = true;
    step.operands[k] = static_cast<uint16_t>(k + 1);
    slots[++k] = builder_.ConstantBytes(values_[value].place);
  }
  FindStep(i)(step, Frame{slots, nullptr, nullptr, 0, kUniformLanes});
}

// Adds the step of an instruction with operands.
Status Planner::Emit(uint16_t at) {
  const Instruction& i = program_.code[at];
  Value& value = values_[at];
  PendingStep pending;
  pending.step.fn = FindStep(i);
  if (pending.step.fn == nullptr) {
    return Internal(
        "no step for opcode " + std::to_string(static_cast<int>(i.op)) +
        " of register type " + std::to_string(static_cast<int>(i.type)));
  }
  pending.step.payload = i.imm;
  pending.instruction = &i;
  const bool hoisted = value.rate != Rate::kBlock;
  pending.rate = value.rate;
  bool constant = true;
  int k = 0;
  for (uint16_t operand : i.operands()) {
    LoadSource(operand);
    pending.operands[k] = values_[operand].place;
    pending.step.moves[k] = hoisted || values_[operand].rate == Rate::kBlock;
    constant &= pending.operands[k].kind == Place::kConstant;
    ++k;
  }
  if (constant) {
    FoldConstant(at);
    return Status();
  }
  ReleaseOperands(at);
  if (hoisted) {
    value.place = builder_.NewCell();
  } else if (value.output >= 0) {
    value.place = output_places_[value.output].direct;
  } else {
    value.place = builder_.NewRegister(WidthOf(at));
  }
  pending.d = value.place;
  builder_.Add(pending);
  if (!hoisted) builder_.Charge(StepCost(i));
  return Status();
}

// Frees the registers that are not read after instruction `at`, which may reuse
// them.
void Planner::ReleaseOperands(uint16_t at) {
  for (uint16_t value : program_.code[at].operands()) {
    Value& operand = values_[value];
    if (operand.last_use != at) continue;
    builder_.Release(std::exchange(operand.place, Place{}));
    builder_.Release(std::exchange(operand.buffer, Place{}));
  }
}

Status Planner::EmitAll() {
  for (size_t at = 0; at < program_.code.size(); ++at) {
    if (program_.code[at].op == Opcode::kBitcast) continue;
    if (IsSource(static_cast<uint16_t>(at))) continue;
    IPU_RETURN_IF_ERROR(Emit(static_cast<uint16_t>(at)));
  }
  for (uint16_t value : program_.outputs) LoadSource(value);
  return Status();
}

// Outputs that are not written directly are copied one after another, by Run or
// by the caller. An operand that is itself an output is first copied to a
// register if writing another output may overwrite it.
void Planner::PlaceOutputs() {
  for (size_t j = 0; j < program_.outputs.size(); ++j) {
    const uint16_t at = program_.outputs[j];
    const Value& value = values_[at];
    output_places_[j].value = value.place;
    if (plan_.outputs[j].way == Output::kUniform && plan_.row == 0) {
      output_places_[j].home = builder_.NewRegister(WidthOf(at));
    }
    // The outputs of a single element are stored after all of them are
    // computed.
    if (builder_.single()) continue;
    if (value.place.kind != Place::kMoving || !IsSource(at)) continue;
    bool overwritten = false;
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      overwritten |=
          program_.outputs[i] != at && MayOverwrite(i, program_.code[at].imm);
    }
    if (!overwritten) continue;
    PendingStep copy;
    copy.step.fn = CopyBlock;
    copy.step.payload = uint64_t{WidthOf(at)};
    copy.operands[0] = value.place;
    copy.d = builder_.NewRegister(WidthOf(at));
    output_places_[j].value = copy.d;
    builder_.Add(copy);
  }
}

// See Output::alternate.
size_t Planner::NumAlternate(size_t j) const {
  const std::vector<Operand>& results = *context_.results;
  const StridedIterator first(context_.shape, results[j]);
  const int64_t n = first.spacing();
  if (FindStore(results[j].view.dtype) != nullptr || n > kMostAlternate ||
      j + static_cast<size_t>(n) > results.size()) {
    return 1;
  }
  for (int64_t k = 1; k < n; ++k) {
    const StridedIterator next(context_.shape, results[j + k]);
    if (next.spacing() != n || next.item_size() != first.item_size() ||
        next.base() != first.base() ||
        next.offset() != first.offset() + k * first.item_size()) {
      return 1;
    }
  }
  return static_cast<size_t>(n);
}

std::vector<StoredOutput> Planner::StoredOutputs() const {
  std::vector<StoredOutput> stored(program_.outputs.size());
  if (context_.results == nullptr) return stored;
  for (size_t j = 0; j < stored.size(); ++j) {
    const Operand& result = (*context_.results)[j];
    const StridedIterator iterator(context_.shape, result);
    if (iterator.dense()) {
      stored[j] = {result.view.dtype, result.streams};
    } else if (iterator.spacing() >= 2) {
      stored[j].alternate = NumAlternate(j);
      stored[j].streams = stored[j].alternate > 1 && result.streams;
    }
  }
  return stored;
}

void Planner::FinishOutputs() {
  for (size_t j = 0; j < plan_.outputs.size(); ++j) {
    plan_.outputs[j].slot = builder_.SlotOf(output_places_[j].value);
    plan_.outputs[j].home = builder_.SlotOf(output_places_[j].home);
  }
}

Status Planner::Run() {
  IPU_RETURN_IF_ERROR(CheckLoads());
  stored_ = StoredOutputs();
  Classify();
  FindDirectOutputs();
  PlanOutputs();
  IPU_RETURN_IF_ERROR(EmitAll());
  PlaceOutputs();
  if (!builder_.NumberSlots()) {
    return Unimplemented("a register program of " +
                         std::to_string(program_.code.size()) +
                         " instructions has too many values at once");
  }
  FinishOutputs();
  MakeNative({plan_, builder_.instructions(), program_.code.data(), sides_,
              builder_.first_constant()},
             stored_, /*whole=*/context_.results != nullptr);
  builder_.LayOut();
  return Status();
}

}  // namespace

Status MakePlan(RegisterCode code, const ProgramContext& context, Plan* plan) {
  plan->size = 1;
  for (int64_t extent : context.shape) plan->size *= extent;
  return Planner(std::move(code), context, plan).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
