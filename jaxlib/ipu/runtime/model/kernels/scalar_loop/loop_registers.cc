#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Integers at once in general registers, which addresses are not given; a
// guess.
constexpr int kFewGeneral = 3;

// What a function without calls may use for further addresses.
constexpr Gpr kPointers[] = {Gpr::kRsi, Gpr::kRdi, Gpr::kR8};

// The lanes of a whole register.
constexpr uint8_t AllLanes(uint32_t width) { return kVectorBytes / width; }

// Whether a step accesses a few elements of other types, which is masked.
bool MasksLanes(const TapeStep& s) {
  const bool is_flag =
      s.kind == TapeStep::kStore && s.lanes == 1 && s.dtype == DType::kBool;
  return s.IsOnSlots() && s.dtype != DType::kNone && !is_flag;
}

}  // namespace

LoopRegisters::LoopRegisters(std::span<const TapeStep> steps,
                             const TapePlaces& places, const Bases& bases,
                             bool calls, std::optional<uint16_t> predicate)
    : steps_(steps),
      places_(places),
      bases_(bases),
      calls_(calls),
      masks_(std::any_of(steps.begin(), steps.end(), MasksLanes)),
      general_steps_(steps, places),
      held_(places.same.size()),
      reads_(places.same.size()) {
  if (predicate) predicate_ = places.same[*predicate];
  for (size_t k = 0; k < steps.size(); ++k) {
    for (size_t j = 0; j < steps[k].NumOperands(); ++j) {
      reads_[Operand(steps[k], j)].push_back(k);
    }
  }
}

void LoopRegisters::BeginPart() {
  emit_.emplace(kLanes<uint32_t>);
  access_.emplace(*emit_, /*narrow=*/4);
  for (const Pinned& p : pinned_) {
    if (!p.general) emit_->NewHoisted();
  }
  general_.FreeAll();
  clamped_.clear();
#if IPU_AVX512
  if (!masks_) return;
  emit_->body().Bytes({0xba, 1, 0, 0, 0,  // mov edx, 1
                       0xc5, 0xfb, 0x92, 0xc0 | kTailMask << 3 | 2});
#endif
}

// The first step from k on that reads a slot; their number if none does.
size_t LoopRegisters::NextRead(size_t slot, size_t k) const {
  const std::vector<size_t>& reads = reads_[slot];
  const auto at = std::lower_bound(reads.begin(), reads.end(), k);
  return at == reads.end() ? steps_.size() : *at;
}

void LoopRegisters::Point() {
  std::map<int64_t, std::pair<int, uint16_t>> uses;
  const auto use = [&](uint16_t slot) {
    const int64_t key = AddressKey(slot);
    if (key == TapePlaces::kSlotsBase || bases_.contains(key)) return;
    // Constants are in registers or part of the instructions.
    const bool is_near = PinOf(slot) != nullptr || general_steps_.Holds(slot);
    if (places_.constant[slot] && is_near) return;
    const auto at = uses.insert({key, {0, slot}}).first;
    --at->second.first;
  };
  for (const TapeStep& s : steps_) {
    for (size_t j = 0; j < s.NumOperands(); ++j) use(Operand(s, j));
    if (s.kind == TapeStep::kSlice) use(places_.same[s.step.operands[1]]);
    if (s.IsOnSlots()) use(Result(s));
  }
  std::vector<std::pair<std::pair<int, uint16_t>, int64_t>> most;
  for (const auto& [key, count] : uses) most.push_back({count, key});
  std::sort(most.begin(), most.end());
  Assembler& body = emit_->body();
  for (size_t k = 0; k < std::min(most.size(), std::size(kPointers)); ++k) {
    if (general_.left() <= kFewGeneral || !general_.Take(kPointers[k])) return;
    const auto [count, key] = most[k];
    body.Load(kPointers[k], kSlots, count.second * 8);
    const int32_t offset = places_.place[count.second].offset;
    if (offset != 0) body.Add(kPointers[k], -offset);
    pointers_[key] = kPointers[k];
  }
}

Address LoopRegisters::At(uint16_t slot) {
  const int64_t key = AddressKey(slot);
  const int32_t offset = places_.place[slot].offset;
  const auto at = [&](Gpr base) {
    return Address{base, /*indexed=*/false, 1, Gpr::kRax, offset};
  };
  if (key == TapePlaces::kSlotsBase) return at(kSlots);
  for (const Bases* known :
       std::initializer_list<const Bases*>{&bases_, &pointers_}) {
    const auto base = known->find(key);
    if (base != known->end()) return at(base->second);
  }
  emit_->body().Load(Gpr::kRcx, kSlots, slot * 8);
  return {Gpr::kRcx, /*indexed=*/false};
}

Condition LoopRegisters::TestPredicate() {
  const Held& held = held_[*predicate_];
  if (held.condition) return *held.condition;
  if (held.general) {
    emit_->body().Test32(*held.general, *held.general);
  } else if (held.mask.reg >= 0) {
    emit_->TestFirst(held.mask);
  } else {
    emit_->body().CompareByte(At(*predicate_), 0);
  }
  return Condition::kNotEqual;
}

// --- Values of all iterations ------------------------------------------------

const LoopRegisters::Pinned* LoopRegisters::PinOf(uint16_t slot) const {
  for (const Pinned& p : pinned_) {
    if (p.slot == slot) return &p;
  }
  return nullptr;
}

bool LoopRegisters::IsPinned(int reg) const {
  return reg >= 0 &&
         std::any_of(pinned_.begin(), pinned_.end(),
                     [reg](const Pinned& p) { return p.reg == reg; });
}

// What an iteration reads before it writes it: what it changes first, then what
// it reads most.
std::vector<LoopRegisters::Pinned> LoopRegisters::Candidates() const {
  std::vector<Pinned> wanted;
  std::set<uint16_t> written, seen;
  for (const TapeStep& s : steps_) {
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      if (!s.ReadsRegister(j)) continue;
      const uint16_t slot = Operand(s, j);
      if (written.contains(slot) || !seen.insert(slot).second) continue;
      wanted.push_back({slot, -1, LoadedLanes(s, j), s.OperandWidth(j)});
    }
    if (s.IsOnSlots()) written.insert(Result(s));
  }
  std::erase_if(wanted, [&](const Pinned& p) {
    if (!places_.in_memory[p.slot] && !places_.constant[p.slot]) return true;
    if (calls_ && !written.contains(p.slot)) return true;
    // What is also written as other elements or in part stays in memory.
    const auto& others = places_.overlaps[p.slot];
    if (std::any_of(others.begin(), others.end(),
                    [&](uint16_t other) { return written.contains(other); })) {
      return true;
    }
    return std::any_of(steps_.begin(), steps_.end(), [&](const TapeStep& s) {
      return s.IsOnSlots() && Result(s) == p.slot &&
             (!s.GivesRegister() || s.ResultLanes() != p.lanes ||
              s.ResultWidth() != p.width);
    });
  });
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&](const Pinned& a, const Pinned& b) {
                     const bool carried = written.contains(a.slot);
                     const bool other = written.contains(b.slot);
                     if (carried != other) return carried;
                     return reads_[a.slot].size() > reads_[b.slot].size();
                   });
  return wanted;
}

void LoopRegisters::Pin(size_t most) {
  for (Pinned p : Candidates()) {
    if (pinned_.size() == most) break;
    if (general_steps_.Holds(p.slot)) {
      PinGeneral(p);
      continue;
    }
    p.reg = emit_->NewHoisted();
    if (p.reg < 0) break;
    emit_->SetLanes(p.lanes);
    access_->LoadWhole(p.width, p.reg, At(p.slot));
    held_[p.slot] = {.reg = p.reg, .lanes = p.lanes, .width = p.width};
    pinned_.push_back(p);
  }
}

void LoopRegisters::UpdatePinned() {
  for (const Pinned& p : pinned_) {
    if (p.general) {
      UpdateGeneral(p);
      continue;
    }
    const int reg = held_[p.slot].reg;
    if (reg == p.reg) continue;
    emit_->SetLanes(reg < 0 ? p.lanes : AllLanes(4));
    if (reg < 0) {
      access_->LoadWhole(p.width, p.reg, At(p.slot));
    } else {
      emit_->Copy(p.reg, reg);
    }
  }
}

// --- Values between steps ----------------------------------------------------

void LoopRegisters::Drop(size_t slot) {
  DropGeneral(slot);
  DropVector(slot);
  held_[slot] = Held{};
}

void LoopRegisters::DropVector(size_t slot) {
  Held& held = held_[slot];
  if (held.reg >= 0 && !IsPinned(held.reg)) emit_->Free(held.reg);
  const int mask = held.mask.reg;
  const auto has_it = [mask](const Held& h) { return h.mask.reg == mask; };
  if (mask >= 0 && std::count_if(held_.begin(), held_.end(), has_it) == 1) {
    emit_->Free(held.mask);
  }
  held.reg = held.mask.reg = -1;
  if (!held.general) held = Held{};
}

void LoopRegisters::DropIfDead(uint16_t slot, size_t k) {
  const Held& held = held_[slot];
  if (held.empty() || IsPinned(held.reg)) return;
  if (held.general && IsPinnedGeneral(*held.general)) return;
  if (NextRead(slot, k + 1) < steps_.size() || PinOf(slot) != nullptr ||
      slot == predicate_ || IsPartRead(slot, k)) {
    return;
  }
  Drop(slot);
}

// Whether a later step reads a part of a slot, or what it is a part of, and
// there are registers to keep it.
bool LoopRegisters::IsPartRead(uint16_t slot, size_t k) const {
  constexpr int kFewFree = 8;  // a guess: more than any step needs
  const Held& held = held_[slot];
  const std::vector<uint16_t>& others = places_.overlaps[slot];
  return held.reg >= 0 && !held.is_bool && emit_->left() > kFewFree &&
         std::any_of(others.begin(), others.end(), [&](uint16_t other) {
           return NextRead(other, k + 1) < steps_.size();
         });
}

void LoopRegisters::Save(size_t slot) {
  Held& held = held_[slot];
  held.unsaved = false;
  if (held.general) {
    return emit_->body().Store(4, At(static_cast<uint16_t>(slot)),
                               *held.general);
  }
  emit_->SetLanes(held.lanes);
  const int reg = Register(slot);
  access_->Store(DType::kNone, true, held.width, reg,
                 At(static_cast<uint16_t>(slot)));
}

// The register of a held value, whose lanes are set.
int LoopRegisters::Register(size_t slot) {
  Held& held = held_[slot];
  if (held.reg < 0) {
    held.reg = emit_->NewRegister();
    emit_->Flags(held.reg, held.mask);
  }
  return held.reg;
}

void LoopRegisters::MakeRoom(size_t k, int needed) {
  while (emit_->left() < needed) {
    const std::optional<size_t> slot = ReadLast(k, [this](const Held& held) {
      return held.in_vector() && !IsPinned(held.reg);
    });
    if (!slot) return;
    SaveForLater(*slot, k);
    DropVector(*slot);
  }
}

// Of the held values that a test accepts and step k does not read, the one that
// is read last.
std::optional<size_t> LoopRegisters::ReadLast(
    size_t k, const std::function<bool(const Held&)>& accepts) const {
  std::optional<size_t> found;
  size_t last = 0;
  for (size_t slot = 0; slot < held_.size(); ++slot) {
    if (!accepts(held_[slot])) continue;
    const size_t next = NextRead(slot, k);
    if (next == k || (found && next <= last)) continue;
    last = next;
    found = slot;
  }
  return found;
}

void LoopRegisters::SaveForLater(size_t slot, size_t k) {
  if (held_[slot].unsaved && NextRead(slot, k) < steps_.size()) Save(slot);
}

// Constants fill a register, whatever reads them first.
uint8_t LoopRegisters::LoadedLanes(const TapeStep& s, size_t j) const {
  const bool constant = places_.constant[Operand(s, j)];
  return constant ? AllLanes(s.OperandWidth(j)) : s.OperandLanes(j);
}

int LoopRegisters::Get(const TapeStep& s, size_t j) {
  const uint16_t slot = Operand(s, j);
  // A copy reads the bytes of booleans as it reads any others.
  if (held_[slot].is_bool) Drop(slot);
  Held& held = held_[slot];
  if (held.general && !held.in_vector() && !places_.constant[slot]) {
    held.reg = emit_->NewRegister();
    emit_->body().Vector(x86::kLoadLow, kShortest, held.reg, 0,
                         static_cast<int>(*held.general));
  } else if (!held.in_vector()) {
    const Pinned* pin = PinOf(slot);
    const bool is_pinned = pin != nullptr && !pin->general;
    held.reg = is_pinned ? pin->reg : emit_->NewRegister();
    held.lanes = is_pinned ? pin->lanes : LoadedLanes(s, j);
    held.width = s.OperandWidth(j);
    Load(slot, held);
  }
  emit_->SetLanes(s.lanes);
  return Register(slot);
}

int LoopRegisters::Take(const TapeStep& s, size_t k) {
  const uint16_t slot = Operand(s, 0);
  if (held_[slot].is_bool) Drop(slot);
  const bool is_last = NextRead(slot, k + 1) == steps_.size() &&
                       PinOf(slot) == nullptr && slot != predicate_;
  if (held_[slot].empty() && PinOf(slot) == nullptr) {
    const int reg = emit_->NewRegister();
    Load(slot, {.reg = reg, .lanes = s.lanes, .width = s.OperandWidth(0)});
    return reg;
  }
  const int reg = Get(s, 0);
  if (is_last && !IsPinned(reg) && held_[slot].mask.reg < 0 &&
      !held_[slot].general) {
    held_[slot] = Held{};
    return reg;
  }
  const int copy = emit_->NewRegister();
  emit_->SetLanes(static_cast<int>(s.lanes * s.OperandWidth(0) / 4));
  emit_->Copy(copy, reg);
  return copy;
}

// The register that holds the word at a distance from the begin of a slot, as
// the first one; -1 if there is none.
int LoopRegisters::Word(uint16_t slot, int distance) const {
  const TapePlaces::Place& place = places_.place[slot];
  for (const uint16_t other : places_.overlaps[slot]) {
    const Held& held = held_[other];
    const bool is_word = held.reg >= 0 && held.lanes == 1 && held.width == 4 &&
                         !held.is_bool && !held.all_bits;
    if (is_word && places_.place[other].base == place.base &&
        places_.place[other].offset == place.offset + distance) {
      return held.reg;
    }
  }
  return -1;
}

// Takes 8 or 16 bytes from the registers of their words: what was stored in
// parts can be loaded only once it is in the cache.
bool LoopRegisters::Pack(uint16_t slot, const Held& to) {
  const int bytes = static_cast<int>(to.lanes * to.width);
  if (bytes != 8 && bytes != 16) return false;
  std::vector<int> words;
  for (int at = 0; at < bytes; at += 4) {
    words.push_back(Word(slot, at));
    if (words.back() < 0) return false;
  }
  for (int k = 1; k < bytes / 4; ++k) {
    const int before = k == 1 ? words[0] : to.reg;
    emit_->body().Vector(x86::kInsertF, kShortest, to.reg, before, words[k],
                         k << 4);
  }
  return true;
}

// Takes a word from the first 16 bytes of a vector, which is sooner done than
// to load what a step has just stored.
bool LoopRegisters::Extract(uint16_t slot, const Held& to) {
  if (to.lanes != 1 || to.width != 4) return false;
  for (const uint16_t other : places_.overlaps[slot]) {
    const Held& held = held_[other];
    const int distance =
        places_.place[slot].offset - places_.place[other].offset;
    const int bytes = static_cast<int>(held.lanes * held.width);
    if (held.reg < 0 || held.is_bool || held.all_bits ||
        places_.place[slot].base != places_.place[other].base || distance < 0 ||
        distance % 4 != 0 || distance >= std::min(16, bytes)) {
      continue;
    }
    emit_->body().Vector(x86::kPermute, kShortest, to.reg, 0, held.reg,
                         distance / 4);
    return true;
  }
  return false;
}

// Loads the value of a slot whose register is empty.
void LoopRegisters::Load(uint16_t slot, const Held& to) {
  const bool is_near = places_.place[slot].base >= 0;
  if (is_near && (Extract(slot, to) || Pack(slot, to))) return;
  emit_->SetLanes(to.lanes);
  access_->LoadWhole(to.width, to.reg, At(slot));
}

bool LoopRegisters::IsCondition(size_t k) const {
  const uint16_t slot = Result(steps_[k]);
  if (places_.in_memory[slot]) return false;
  return std::all_of(reads_[slot].begin(), reads_[slot].end(),
                     [&](size_t reader) {
                       const TapeStep& s = steps_[reader];
                       return s.kind == TapeStep::kCompute &&
                              s.instruction.op == program::Opcode::kSelect &&
                              s.ResultWidth() == 4 && Operand(s, 1) != slot &&
                              Operand(s, 2) != slot;
                     });
}

const LoopRegisters::Held* LoopRegisters::Stored(const TapeStep& load) const {
  const Held& held = held_[Operand(load, 0)];
  const bool same = held.is_bool && held.in_vector() &&
                    load.dtype == DType::kBool && load.lanes == held.lanes;
  return same ? &held : nullptr;
}

void LoopRegisters::Define(size_t k, Held made) {
  const TapeStep& s = steps_[k];
  const uint16_t d = Result(s);
  Drop(d);
  ForgetClamped(d);
  for (uint16_t other : places_.overlaps[d]) {
    Drop(other);
    ForgetClamped(other);
  }
  // It may share the register of what has just been given up.
  if (made.general) general_.Take(*made.general);
  held_[d] = made;
  if (made.empty() || made.is_bool) {
    // It is in memory already.
  } else if (places_.in_memory[d]) {
    Save(d);
  } else {
    held_[d].unsaved = true;
  }
  for (size_t j = 0; j < s.NumOperands(); ++j) DropIfDead(Operand(s, j), k);
  DropIfDead(d, k);
}

void LoopRegisters::Forget(size_t k) {
  for (size_t slot = 0; slot < held_.size(); ++slot) {
    SaveForLater(slot, k);
    held_[slot] = Held{};
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
