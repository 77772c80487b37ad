// What kernels record.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/make_step.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Of a vector register: a limit of the processor. Fewer words than it has are
// moved one by one, also a limit.
constexpr uint32_t kShortestBytes = 16;
constexpr uint32_t kMostSingle = kShortestBytes / 4 - 1;

// The size of the first of the pieces that hold `left` bytes: vectors as those
// of maps, which then find them in registers, and what is left of 4 or 8 bytes.
uint32_t PieceOf(uint32_t left, bool words) {
  uint32_t bytes = kVectorBytes;
  while (bytes > left && bytes > kShortestBytes) bytes /= 2;
  if (bytes <= left) return bytes;
  return words || left < 8 ? 4 : 8;
}

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
  for (const TapeStep& made : steps.subspan(producer + 1)) {
    for (uint16_t operand : made.step.operands) {
      const Slot& slot = slots_[operand];
      if (slot.kind == Slot::kMemory && Overlap(slot.item, item)) return true;
    }
  }
  return std::any_of(
      plan.outputs.begin(), plan.outputs.end(), [&](const Output& output) {
        const Slot& slot = slots_[first + output.slot];
        return slot.kind == Slot::kMemory && Overlap(slot.item, item);
      });
}

bool Tape::Evaluate(const Plan& plan, std::span<const ItemStore> stores,
                    uint8_t lanes, std::span<const uint16_t> uniform) {
  if (!HasRoom(SlotsOf(plan, stores.size()))) return false;
  const auto first = static_cast<uint16_t>(slots_.size());
  slots_.resize(first + plan.num_slots);
  AddConstants(plan, first + plan.offsets.size());
  const auto is_uniform = [&](uint16_t slot) {
    return std::find(uniform.begin(), uniform.end(), slot) != uniform.end();
  };
  // The lanes of each slot's value; 0: a constant, in as many as are read.
  std::vector<uint8_t> lanes_of(plan.num_slots);
  for (const InPlace& operand : plan.in_place) {
    const uint8_t n = is_uniform(operand.slot) ? 1 : lanes;
    lanes_of[operand.slot] = n;
    slots_[first + operand.slot] = {
        Slot::kMemory,
        {operand.base, operand.offset, operand.width * n},
        nullptr};
  }

  std::vector<TapeStep> steps;
  std::map<uint16_t, uint16_t> spread;
  // The slot of a value in all lanes.
  const auto in_lanes = [&](uint16_t slot, uint32_t width) -> uint16_t {
    if (lanes == 1 || lanes_of[slot] != 1) return first + slot;
    const auto [at, is_new] = spread.insert({slot, 0});
    if (is_new) {
      at->second = Add({});
      steps.push_back(MakeSpread(width, lanes, at->second, first + slot));
    }
    return at->second;
  };
  for (size_t k = 0; k < plan.one_steps.size(); ++k) {
    const Step& step = plan.one_steps[k];
    const program::Instruction& i = plan.one_instructions[k];
    TapeStep made{};
    made.step = step;
    made.step.d += first;
    if (step.fn == LoadDense) {
      const Source& source = SourceOf(step);
      const StridedIterator& from = source.iterator;
      made.kind = TapeStep::kLoad;
      made.lanes = is_uniform(step.d) ? 1 : lanes;
      made.width = source.width;
      made.dtype = source.dtype;
      made.moved = source.moved;
      const Item item{from.base(), from.offset(),
                      from.item_size() * made.lanes};
      made.step.operands[0] = Add({Slot::kMemory, item, nullptr});
      made.step.operands[1] = made.step.operands[2] = made.step.operands[0];
    } else if (i.op != kUnknown.op) {
      made.kind = TapeStep::kCompute;
      made.instruction = i;
      const size_t count = i.operands().size();
      uint8_t n = 0;
      for (size_t j = 0; j < count; ++j) {
        n = std::max(n, lanes_of[step.operands[j]]);
      }
      made.lanes = std::max<uint8_t>(n, 1);
      for (size_t j = 0; j < 3; ++j) {
        const uint16_t slot = step.operands[std::min(j, count - 1)];
        made.step.operands[j] =
            made.lanes == 1
                ? first + slot
                : in_lanes(slot, OperandBytes(i, std::min(j, count - 1)));
      }
    } else {  // an index, for instance
      if (lanes > 1) return false;
      for (uint16_t& operand : made.step.operands) operand += first;
    }
    lanes_of[step.d] = made.lanes;
    steps.push_back(made);
  }
  // Values are written directly to their tensors, unless a tensor still has to
  // be read. A value that is several outputs is written directly to the first.
  std::vector<TapeStep> last;
  for (size_t j = 0; j < stores.size(); ++j) {
    const auto [to, dtype] = stores[j];
    const Output& output = plan.outputs[j];
    const uint32_t width = program::RegisterBytes(output.type);
    const uint16_t value = in_lanes(output.slot, width);
    const auto producer =
        std::find_if(steps.begin(), steps.end(),
                     [value](const TapeStep& s) { return s.step.d == value; });
    const uint16_t target = Add({Slot::kMemory, to, nullptr});
    if (dtype != DType::kNone) {
      last.push_back(MakeStore(dtype, width, lanes, target, value));
    } else if (producer == steps.end() || slots_[value].kind == Slot::kMemory ||
               ReadLater(plan, steps, producer - steps.begin(), first, to)) {
      last.push_back(lanes == 1 ? MakeCopy(to.bytes, target, value)
                                : MakeMove(width, lanes, target, value));
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
    steps.push_back(
        MakeMove(bytes / lanes, lanes, made.step.operands[0], value));
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
  steps_.push_back(MakeRun(plan.steps[0].payload, first, count));
  return true;
}

bool Tape::IsFew(int64_t bytes) {
  constexpr int64_t kMostCopied = 256;  // a limit, as of maps
  if (bytes <= 8) return IsCopied(static_cast<uint32_t>(bytes));
  return bytes <= kMostCopied && bytes % 4 == 0;
}

bool Tape::Copy(Item from, Item to) {
  if (!IsFew(from.bytes) ||
      !HasRoom(2 * (from.bytes / kShortestBytes + kMostSingle))) {
    return false;
  }
  const bool single = IsCopied(from.bytes);
  for (uint32_t left = from.bytes; left > 0; left -= from.bytes) {
    const uint32_t bytes = single ? left : PieceOf(left, /*words=*/true);
    from.bytes = to.bytes = bytes;
    const uint16_t source = Add({Slot::kMemory, from, nullptr});
    const uint16_t target = Add({Slot::kMemory, to, nullptr});
    const bool vector = bytes >= kShortestBytes;
    steps_.push_back(
        vector ? MakeMove(4, static_cast<uint8_t>(bytes / 4), target, source)
               : MakeCopy(bytes, target, source));
    from.offset += bytes;
    to.offset += bytes;
  }
  return true;
}

bool Tape::SumOfProducts(DType dtype,
                         std::span<const std::pair<Item, Item>> pairs,
                         Item to) {
  if (!HasRoom(3 * pairs.size())) return false;
  const program::RegisterType type = program::RegisterTypeOf(dtype);
  uint16_t sum = 0;
  for (size_t k = 0; k < pairs.size(); ++k) {
    const uint16_t operands[] = {Add({Slot::kMemory, pairs[k].first, nullptr}),
                                 Add({Slot::kMemory, pairs[k].second, nullptr}),
                                 sum};
    const bool last = k + 1 == pairs.size();
    sum = last ? Add({Slot::kMemory, to, nullptr}) : Add({});
    const auto op = k == 0 ? program::Opcode::kMul : program::kMulAdd;
    steps_.push_back(MakeCompute(
        {op, type, {}, 0}, std::span(operands).first(k == 0 ? 2 : 3), sum, 1));
  }
  return true;
}

bool Tape::Sum(Item from, DType dtype, bool squares, Item to) {
  const uint32_t width = to.bytes, count = from.bytes / width;
  if ((from.bytes != 16 && from.bytes != 32) || count < 4 || !HasRoom(3)) {
    return false;
  }
  const program::RegisterType type = program::RegisterTypeOf(dtype);
  uint16_t source = Add({Slot::kMemory, from, nullptr});
  if (squares) {
    const uint16_t cell = Add({});
    const uint16_t factors[] = {source, source};
    steps_.push_back(MakeCompute({program::Opcode::kMul, type, {}, 0}, factors,
                                 cell, static_cast<uint8_t>(count)));
    source = cell;
  }
  const uint16_t target = Add({Slot::kMemory, to, nullptr});
  steps_.push_back(MakeSum(type, static_cast<uint8_t>(count), target, source));
  steps_.back().negative = !squares;
  return true;
}

uint16_t Tape::AddIndices(std::span<const Item> indices) {
  const auto first = static_cast<uint16_t>(slots_.size());
  for (const Item& index : indices) Add({Slot::kMemory, index, nullptr});
  return first;
}

size_t Tape::SlotsOfWindow(int64_t bytes, size_t indices) {
  // Of each piece also two cells, if it is combined.
  return (4 + indices) * (bytes / kShortestBytes + kMostSingle);
}

template <typename F>
void Tape::ForWindow(Item dense, Item tensor, const WindowStart& start,
                     uint32_t item_size, const F& add) {
  uint32_t last = 0;
  for (const auto& [limit, stride] : start.indices) {
    last += static_cast<uint32_t>(limit) * static_cast<uint32_t>(stride);
  }
  for (uint32_t left = dense.bytes; left > 0;) {
    const uint32_t bytes = left < 4 ? left : PieceOf(left, item_size == 4);
    const bool vector = bytes >= kShortestBytes;
    const uint32_t width = vector ? std::clamp(item_size, 4u, 8u) : bytes;
    dense.bytes = bytes;
    tensor.bytes = last + bytes;
    add(Add({Slot::kMemory, dense, nullptr}),
        Add({Slot::kMemory, tensor, nullptr}), width,
        static_cast<uint8_t>(bytes / width));
    dense.offset += bytes;
    tensor.offset += bytes;
    left -= bytes;
  }
}

void Tape::Slice(std::span<const Item> indices, Item tensor,
                 const WindowStart& start, Item to, uint32_t item_size) {
  ForWindow(to, tensor, start, item_size,
            [&](uint16_t d, uint16_t from, uint32_t width, uint8_t n) {
              const uint16_t at = AddIndices(indices);
              steps_.push_back(MakeSlice(start, width, n, d, at, from));
            });
}

void Tape::Update(std::span<const Item> indices, Item tensor,
                  const WindowStart& start, Item from, uint32_t item_size) {
  ForWindow(from, tensor, start, item_size,
            [&](uint16_t operand, uint16_t d, uint32_t width, uint8_t n) {
              const uint16_t at = AddIndices(indices);
              steps_.push_back(MakeUpdate(start, width, n, d, at, operand));
            });
}

void Tape::Combine(std::span<const Item> indices, Item tensor,
                   const WindowStart& start, Item from,
                   const program::Instruction& combine) {
  ForWindow(from, tensor, start, program::RegisterBytes(combine.type),
            [&](uint16_t operand, uint16_t d, uint32_t width, uint8_t n) {
              const uint16_t at = AddIndices(indices);
              const uint16_t values[] = {Add({}), operand};
              const uint16_t made = Add({});
              steps_.push_back(MakeSlice(start, width, n, values[0], at, d));
              steps_.push_back(MakeCompute(combine, values, made, n));
              steps_.push_back(MakeUpdate(start, width, n, d, at, made));
            });
}

void Tape::Call(StepFn fn, const void* what, uint16_t pointer) {
  steps_.push_back(MakeOpaque(fn, pointer, what));
}

std::optional<uint16_t> Tape::AddPointer() {
  if (!HasRoom(1)) return std::nullopt;
  return Add({Slot::kPointer, {}, nullptr});
}

std::optional<uint16_t> Tape::AddItem(Item item) {
  if (!HasRoom(1)) return std::nullopt;
  return Add({Slot::kMemory, item, nullptr});
}

void Tape::Loop(TapeLoop loop) {
  loops_.push_back(std::make_unique<const TapeLoop>(std::move(loop)));
  steps_.push_back(MakeLoop(*loops_.back()));
}

void Tape::Restore(const State& state) {
  slots_.resize(state.slots);
  steps_.resize(state.steps);
  loops_.resize(state.loops);
  kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(state.kept),
              kept_.end());
}

bool Tape::Switch(Item selector, DType dtype) {
  if (!HasRoom(1)) return false;
  TapeStep made{};
  made.kind = TapeStep::kSwitch;
  made.dtype = dtype;
  made.step.operands[0] = Add({Slot::kMemory, selector, nullptr});
  steps_.push_back(made);
  return true;
}

bool Tape::Branch(Item count, bool last) {
  if (!HasRoom(1)) return false;
  TapeStep made{};
  made.kind = TapeStep::kBranch;
  made.last = last;
  made.step.operands[0] = Add({Slot::kMemory, count, nullptr});
  steps_.push_back(made);
  return true;
}

void Tape::Join() {
  TapeStep made{};
  made.kind = TapeStep::kJoin;
  steps_.push_back(made);
}

TapePlaces Tape::Places() const {
  TapePlaces places;
  places.overlaps.resize(slots_.size());
  std::map<std::tuple<uint32_t, int64_t, uint32_t>, uint16_t> first;
  std::map<std::string_view, uint16_t> equal;
  std::vector<uint16_t> sorted;  // the first of each location in memory
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    const Item& item = slot.item;
    auto same = static_cast<uint16_t>(k);
    TapePlaces::Place place;
    if (slot.kind == Slot::kMemory) {
      const auto [at, is_new] =
          first.insert({{item.base, item.offset, item.bytes}, same});
      if (is_new) sorted.push_back(same);
      same = at->second;
      if (item.offset <= std::numeric_limits<int32_t>::max()) {
        place = {item.base, static_cast<int32_t>(item.offset)};
      }
    } else if (slot.kind == Slot::kConstant) {
      same = equal.insert({{slot.constant, kVectorBytes}, same}).first->second;
    } else if (slot.kind == Slot::kCell) {
      place = {TapePlaces::kSlotsBase,
               static_cast<int32_t>(offsetof(Room, cells) + k * kCellBytes)};
    }
    places.same.push_back(same);
    places.place.push_back(place);
    places.in_memory.push_back(slot.kind == Slot::kMemory);
    places.constant.push_back(slot.constant);
  }
  const auto where = [&](uint16_t k) {
    const Item& item = slots_[k].item;
    return std::pair(storage_[item.base], item.offset);
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](uint16_t a, uint16_t b) { return where(a) < where(b); });
  for (auto a = sorted.begin(); a != sorted.end(); ++a) {
    const auto [storage, begin] = where(*a);
    const std::pair end{storage, begin + slots_[*a].item.bytes};
    for (auto b = a + 1; b != sorted.end() && where(*b) < end; ++b) {
      places.overlaps[*a].push_back(*b);
      places.overlaps[*b].push_back(*a);
    }
  }
  return places;
}

void Tape::Bind(const Memory& memory, Room& room) const {
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    switch (slot.kind) {
      case Slot::kCell:
        room.slots[k] = room.cells + k * kCellBytes;
        break;
      case Slot::kConstant:
        room.slots[k] = const_cast<char*>(slot.constant);
        break;
      case Slot::kMemory:
        room.slots[k] = memory.bases[slot.item.base] + slot.item.offset;
        break;
      case Slot::kPointer:
        break;
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
