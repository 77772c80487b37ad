#include "jaxlib/ipu/runtime/model/kernels/native/value_emitter.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

// Registers for an instruction with its operands, if these are loaded again. A
// guess: most take fewer.
constexpr int kRoom = 5;

using program::Instruction;
using program::Opcode;
using program::RegisterType;

bool IsShuffled(const NativeValue& v) {
  return v.kind == NativeValue::kElements && !v.source->iterator.dense();
}

}  // namespace

ValueEmitter::ValueEmitter(std::span<const NativeValue> values,
                           std::span<const ValueSide> sides, int lanes,
                           Manner manner)
    : values_(values),
      sides_(sides),
      emit_(lanes, manner.most_hoisted),
      body_(emit_.body()),
      access_(emit_, /*narrow=*/4),
      shuffled_(emit_),
      pointers_(emit_),
      manner_(manner),
      vectors_(manner.together) {
  FindGroup();
}

ValueEmitter::ValueEmitter(std::span<const NativeValue> values,
                           std::vector<Range> ranges, uint32_t bytes)
    : values_(values),
      emit_(kLanes<uint8_t> / static_cast<int>(bytes)),
      body_(emit_.body()),
      access_(emit_, bytes),
      shuffled_(emit_),
      pointers_(emit_),
      words_(std::in_place, emit_, values, std::move(ranges), bytes),
      manner_() {
  FindGroup();
}

// Sets how many vectors a group has: a multiple of those that are interleaved,
// after which the places of lanes repeat.
void ValueEmitter::FindGroup() {
  for (const NativeValue& v : values_) {
    numbered_ |= IsShuffled(v) || !v.alternates.empty();
    if (!IsShuffled(v)) continue;
    vectors_ = VectorsInGroup(v.source->iterator, emit_.lanes(),
                              vectors_ * emit_.lanes());
    if (vectors_ == 0) return emit_.Fail();
  }
  shuffled_.SetGroup(vectors_ * emit_.lanes());
  if (!words_) quads_ = FindQuads(values_);
}

// That of the current vector. Invariants are the same for all.
ValueEmitter::State& ValueEmitter::StateOf(int value) {
  const bool shared = values_[value].kind == NativeValue::kInvariant;
  return states_[(shared ? 0 : copy_ * values_.size()) + value];
}

// The register that holds a value; loads the value if necessary.
int ValueEmitter::Get(int value) {
  State& state = StateOf(value);
  if (state.reg >= 0) return state.reg;
  const NativeValue& v = values_[value];
  if (v.kind == NativeValue::kInvariant) return LoadInvariant(v, state);
  if (LoadsQuad(value)) return state.reg;
  state.reg = emit_.NewRegister();
  if (state.flags.reg >= 0) {
    emit_.Flags(state.reg, state.flags);
  } else if (v.kind == NativeValue::kBlock) {
    access_.LoadWhole(v.width, state.reg, At(v.slot, v.width));
  } else if (v.kind == NativeValue::kIndices) {
    LoadIndices(v, state.reg);
  } else {
    LoadElements(v, state.reg);
  }
  return state.reg;
}

// Before the loop if a register is left, else in it.
int ValueEmitter::LoadInvariant(const NativeValue& v, State& state) {
  const int reg = emit_.TryHoisted();
  Assembler& to = reg < 0 ? body_ : emit_.hoisted();
  state.hoisted = reg >= 0;
  state.reg = state.hoisted ? reg : emit_.NewRegister();
  if (reg < 0 && v.constant != nullptr && !words_) {
    to.VectorConstant(x86::kLoad, emit_.Of(v.width), state.reg, 0,
                      emit_.InAllLanes(v.width, *KnownBits(v)));
    return state.reg;
  }
  to.Load(Gpr::kRcx, Gpr::kRsi, v.slot * 8);
  const uint32_t width = words_ ? words_->bytes() : v.width;
  const Lanes lanes = reg < 0 ? emit_.Of(width) : emit_.Whole(width);
  to.Vector(words_ ? words_->broadcast() : x86::kLoad, lanes, state.reg, 0,
            Address{Gpr::kRcx, /*indexed=*/false});
  return state.reg;
}

// The current vector of a block.
Address ValueEmitter::At(int slot, uint32_t scale) {
  return {.base = pointers_.OfSlot(slot),
          .scale = static_cast<uint8_t>(scale),
          .offset = static_cast<int32_t>(FirstLane() * scale)};
}

void ValueEmitter::LoadElements(const NativeValue& v, int reg) {
  const Source& source = *v.source;
  const StridedIterator& iterator = source.iterator;
  Address at = pointers_.OfSource(source, vectors_ * emit_.lanes());
  if (!IsShuffled(v)) {
    at.indexed = true;
    at.scale = static_cast<uint8_t>(iterator.item_size());
    at.offset += static_cast<int32_t>(FirstLane() * iterator.item_size());
    return access_.Load(source.dtype, v.moved, v.width, reg, at);
  }
  at = shuffled_.Load(iterator, vector_, tail_, reg, at);
  if (at.vector >= 0 && iterator.item_size() == v.width) return;
  access_.Load(source.dtype, v.moved, v.width, reg, at);
}

// Loads a value together with its neighbours that will be read, if there are
// any and registers for them.
bool ValueEmitter::LoadsQuad(int value) {
  if (tail_ || words_ || emit_.left() < LaneLoads::kForQuad) return false;
  for (const Quad& quad : quads_) {
    std::array<bool, 4> wanted;
    for (size_t k = 0; k < wanted.size(); ++k) {
      const int v = quad.values[k];
      wanted[k] =
          v >= 0 && StateOf(v).reg < 0 && values_[v].last_use >= computed_;
    }
    const auto& all = quad.values;
    if (std::find(all.begin(), all.end(), value) == all.end()) continue;
    if (std::count(wanted.begin(), wanted.end(), true) < 2 ||
        !shuffled_.CanLoadQuad(quad.first->iterator)) {
      return false;
    }
    const Address at =
        pointers_.OfSource(*quad.first, vectors_ * emit_.lanes());
    const std::array<int, 4> regs =
        shuffled_.LoadQuad(quad.first->iterator, vector_, wanted, at);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (wanted[k]) StateOf(all[k]).reg = regs[k];
    }
    return true;
  }
  return false;
}

// The numbers of the lanes' elements.
void ValueEmitter::LoadIndices(const NativeValue& v, int reg) {
  body_.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, begin));
  body_.Add(Gpr::kRcx, Gpr::kRax);
  if (copy_ > 0) body_.Add(Gpr::kRcx, static_cast<int>(FirstLane()));
  emit_.Indices(v.index, reg, Gpr::kRcx);
}

// Once all of these values are known.
void ValueEmitter::StoreAlternately(int value) {
  const std::vector<int>& all = values_[value].alternates;
  if (*std::max_element(all.begin(), all.end()) != value) return;
  const NativeValue& first = values_[all[0]];
  std::vector<int> regs;
  for (const int other : all) regs.push_back(Get(other));
  const auto bytes = static_cast<int64_t>(first.width * all.size());
  const Gpr group =
      pointers_.OfSlot(first.stored, bytes * vectors_ * emit_.lanes());
  shuffled_.StoreAlternately(static_cast<int>(first.width), regs, vector_,
                             tail_, streaming_ && Streams(first),
                             {.base = group, .indexed = false});
}

void ValueEmitter::StoreValue(const NativeValue& v, int value) {
  if (!v.alternates.empty()) return StoreAlternately(value);
  const int reg = Get(value);
  const uint32_t item =
      v.stored_dtype != DType::kNone ? ItemSize(v.stored_dtype) : v.width;
  const Address at = At(v.stored, item);
  if (streaming_ && Streams(v)) return access_.Stream(reg, at);
  access_.Store(v.stored_dtype, v.moved, v.width, reg, at);
}

// Emits the code for `count` vectors of all values, the first one of which is
// the given one of its group.
void ValueEmitter::Vectors(int64_t number, int count, bool tail) {
  access_.SetTail(tail);
  tail_ = tail;
  copies_ = count;
  std::vector<State> before(together() * values_.size());
  for (size_t k = 0; k < states_.size(); ++k) {
    if (states_[k].hoisted) before[k] = states_[k];
  }
  states_ = std::move(before);
  emit_.FreeAll();
  auto side = sides_.begin();
  for (int k = 0; k < std::ssize(values_) && !emit_.failed();) {
    if (side != sides_.end() && k == side->begin) {
      ComputeSide(*side, number);
      k = (side++)->end;
    } else {
      ComputeInAll(k++, number);
    }
  }
  copy_ = 0;
}

// Computes a value of all vectors that are interleaved.
void ValueEmitter::ComputeInAll(int value, int64_t number) {
  for (copy_ = 0; copy_ < copies_; ++copy_) {
    vector_ = number + copy_;
    ComputeAndStore(value);
  }
}

// Whether a value is computed from another.
bool ValueEmitter::Reads(int value, int operand) const {
  const auto& operands = values_[value].operands;
  return std::find(std::begin(operands), std::end(operands), operand) !=
         std::end(operands);
}

// Frees registers for the computation of a value: of operands of any of the
// vectors, which can be loaded again, first those that are read latest.
void ValueEmitter::MakeRoom(int value) {
  const auto next_use = [&](int source) {
    int use = value + 1;
    while (use < values_[source].last_use && !Reads(use, source)) ++use;
    return use;
  };
  while (emit_.left() < kRoom) {
    State* last = nullptr;
    int last_use = 0;
    for (size_t k = 0; k < states_.size(); ++k) {
      const auto source = static_cast<int>(k % values_.size());
      State& state = states_[k];
      if (values_[source].kind == NativeValue::kComputed || state.hoisted ||
          state.reg < 0 || Reads(value, source)) {
        continue;
      }
      const int use = next_use(source);
      if (use > last_use) {
        last = &state;
        last_use = use;
      }
    }
    if (last == nullptr) return;
    emit_.Free(last->reg);
    last->reg = -1;
  }
}

// Frees the registers of what is not needed any more, too.
void ValueEmitter::ComputeAndStore(int value) {
  const NativeValue& v = values_[value];
  if (v.kind != NativeValue::kComputed) return;
  computed_ = value;
  if (manner_.reloads) MakeRoom(value);
  Compute(value);
  if (v.stored >= 0) StoreValue(v, value);
  for (int operand : v.operands) {
    if (operand >= 0 && values_[operand].last_use == value) Drop(operand);
  }
  for (int other : v.alternates) {
    if (other != value && values_[other].last_use == value) Drop(other);
  }
  if (v.last_use < 0) Drop(value);
}

void ValueEmitter::Drop(int value) {
  State& state = StateOf(value);
  const bool shared = values_[value].kind == NativeValue::kInvariant;
  if (state.hoisted || (shared && copy_ + 1 < copies_)) return;
  if (state.reg >= 0) emit_.Free(state.reg);
  if (state.flags.reg >= 0) emit_.Free(state.flags);
  state = State{};
}

// Emits an instruction; its result is in the value's register.
void ValueEmitter::Compute(int value) {
  const NativeValue& v = values_[value];
  const Instruction& i = v.instruction;
  if (i.op == Opcode::kSelect) return Select(value);
  if (CombineMasks(value) || ConvertMask(value)) return;
  std::array<int, 3> r = {};
  for (int k = 0; k < 3; ++k) {
    if (v.operands[k] < 0 || (words_ && !words_->Reads(v, k))) continue;
    r[k] = Get(v.operands[k]);
  }
  if (GivesMask(i.op)) {
    return Compare(value, r[0], r[1]);
  }
  const int d = emit_.NewRegister();
  StateOf(value).reg = d;
  if (words_) return words_->Compute(v, d, r[0], r[1], r[2]);
  VectorEmitter::KnownOperands known{};
  for (int k = 0; k < 3; ++k) {
    if (v.operands[k] < 0) continue;
    const NativeValue& operand = values_[v.operands[k]];
    known[k] = {KnownBits(operand), IsMagnitude(operand)};
  }
  emit_.Compute(i, d, r[0], r[1], r[2], known);
}

// Keeps the lanes until the value is needed in a vector register.
void ValueEmitter::Compare(int value, int a, int b) {
  State& state = StateOf(value);
  const Instruction& i = values_[value].instruction;
  const uint32_t width =
      words_ ? words_->bytes() : program::RegisterBytes(i.type);
  state.flags = emit_.KeepMask(width);
  const bool waits = state.flags.reg >= 0;
  if (!waits) state.flags = emit_.NewMask(width);
  if (words_) {
    words_->Compare(values_[value], state.flags, a, b);
  } else {
    emit_.Compare(i, state.flags, a, b);
  }
  if (!waits) {
    Get(value);
    state.flags.reg = -1;
  }
}

// Keeps what combines two comparisons as lanes, too.
bool ValueEmitter::CombineMasks(int value) {
  const NativeValue& v = values_[value];
  // Booleans differ as their XOR says.
  const Opcode op =
      v.instruction.op == Opcode::kNe ? Opcode::kXor : v.instruction.op;
  if ((op != Opcode::kAnd && op != Opcode::kOr && op != Opcode::kXor) ||
      v.instruction.type != RegisterType::kU32) {
    return false;
  }
  const Mask a = StateOf(v.operands[0]).flags;
  const Mask b = StateOf(v.operands[1]).flags;
  if (a.reg < 0 || b.reg < 0 || a.width != b.width) return false;
  const Mask both = emit_.KeepMask(a.width);
  if (both.reg < 0) return false;
  StateOf(value).flags = both;
  emit_.Combine(op, both, a, b);
  return true;
}

// Converts a comparison to floats.
bool ValueEmitter::ConvertMask(int value) {
  const NativeValue& v = values_[value];
  const Instruction& i = v.instruction;
  if (words_ || i.op != Opcode::kConvert || i.type != RegisterType::kF32 ||
      program::TypeBefore(i) != RegisterType::kU32) {
    return false;
  }
  const Mask flags = StateOf(v.operands[0]).flags;
  if (flags.reg < 0 || flags.width != 4) return false;
  const int d = emit_.NewRegister();
  StateOf(value).reg = d;
  emit_.FloatFlags(d, flags);
  return true;
}

void ValueEmitter::Select(int value) {
  const auto [flag, yes, no] = values_[value].operands;
  const int y = Get(yes), n = Get(no);
  Mask mask = StateOf(flag).flags;
  const bool tests = mask.reg < 0;
  if (tests) {
    const int flags = Get(flag);
    mask = emit_.NewMask(words_ ? words_->bytes() : 4);
    emit_.Test(mask, flags);
  }
  const int d = emit_.NewRegister();
  StateOf(value).reg = d;
  emit_.Blend(words_ ? words_->bytes() : values_[value].width, mask, d, n, y);
  if (tests) emit_.Free(mask);
}

bool ValueEmitter::Streams(const NativeValue& v) const {
  return v.streams && !words_ && v.stored >= 0 &&
         v.stored_dtype == DType::kNone &&
         emit_.lanes() * static_cast<int>(v.width) == kVectorBytes;
}

}  // namespace ipu::model::IPU_SIMD_NS
