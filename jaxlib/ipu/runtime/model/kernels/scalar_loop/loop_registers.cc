#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

// What a function without calls may use for the addresses of slots.
constexpr Gpr kPointers[] = {Gpr::kRax, Gpr::kRsi, Gpr::kRdi,
                             Gpr::kR8,  Gpr::kR9,  Gpr::kR10};

// The lanes of a whole register.
constexpr uint8_t AllLanes(uint32_t width) { return kVectorBytes / width; }

}  // namespace

LoopRegisters::LoopRegisters(std::span<const TapeStep> steps,
                             const TapePlaces& places, bool calls)
    : steps_(steps),
      places_(places),
      calls_(calls),
      held_(places.same.size()),
      reads_(places.same.size()) {
  for (size_t k = 0; k < steps.size(); ++k) {
    for (size_t j = 0; j < steps[k].NumOperands(); ++j) {
      reads_[Operand(steps[k], j)].push_back(k);
    }
  }
}

void LoopRegisters::BeginPart() {
  emit_.emplace(kLanes<uint32_t>);
  access_.emplace(*emit_, /*narrow=*/4);
  for (size_t k = 0; k < pinned_.size(); ++k) emit_->NewHoisted();
#if IPU_AVX512
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

void LoopRegisters::Point(Assembler& code) {
  std::map<uint16_t, int> uses;
  for (const TapeStep& s : steps_) {
    for (size_t j = 0; j < s.NumOperands(); ++j) ++uses[Operand(s, j)];
    if (places_.in_memory[Result(s)]) ++uses[Result(s)];
  }
  std::vector<std::pair<int, uint16_t>> most;
  for (const auto& [slot, count] : uses) most.push_back({-count, slot});
  std::sort(most.begin(), most.end());
  for (size_t k = 0; k < std::min(most.size(), std::size(kPointers)); ++k) {
    pointers_[most[k].second] = kPointers[k];
    code.Load(kPointers[k], kSlots, most[k].second * 8);
  }
}

Address LoopRegisters::At(uint16_t slot) {
  const auto pointer = pointers_.find(slot);
  if (pointer != pointers_.end()) return {pointer->second, false};
  emit_->body().Load(Gpr::kRcx, kSlots, slot * 8);
  return {Gpr::kRcx, /*indexed=*/false};
}

// --- Values of all iterations ------------------------------------------------

const LoopRegisters::Pinned* LoopRegisters::PinOf(uint16_t slot) const {
  for (const Pinned& p : pinned_) {
    if (p.slot == slot) return &p;
  }
  return nullptr;
}

bool LoopRegisters::IsPinned(int reg) const {
  return std::any_of(pinned_.begin(), pinned_.end(),
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
  Held& held = held_[slot];
  if (held.reg >= 0 && !IsPinned(held.reg)) emit_->Free(held.reg);
  const int mask = held.mask.reg;
  const auto has_it = [mask](const Held& h) { return h.mask.reg == mask; };
  if (mask >= 0 && std::count_if(held_.begin(), held_.end(), has_it) == 1) {
    emit_->Free(held.mask);
  }
  held = Held{};
}

void LoopRegisters::DropIfDead(uint16_t slot, size_t k) {
  if (held_[slot].empty() || IsPinned(held_[slot].reg)) return;
  if (NextRead(slot, k + 1) < steps_.size() || PinOf(slot) != nullptr) return;
  Drop(slot);
}

void LoopRegisters::Save(size_t slot) {
  Held& held = held_[slot];
  emit_->SetLanes(held.lanes);
  const int reg = Register(slot);
  access_->Store(DType::kNone, true, held.width, reg,
                 At(static_cast<uint16_t>(slot)));
  held.unsaved = false;
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
    size_t last = 0, victim = held_.size();
    for (size_t slot = 0; slot < held_.size(); ++slot) {
      const Held& held = held_[slot];
      if (held.empty() || IsPinned(held.reg)) continue;
      const size_t next = NextRead(slot, k);
      if (next == k || (victim < held_.size() && next <= last)) continue;
      last = next;
      victim = slot;
    }
    if (victim == held_.size()) return;
    if (held_[victim].unsaved && last < steps_.size()) Save(victim);
    Drop(victim);
  }
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
  if (held.empty()) {
    const Pinned* pin = PinOf(slot);
    held.reg = pin != nullptr ? pin->reg : emit_->NewRegister();
    held.lanes = pin != nullptr ? pin->lanes : LoadedLanes(s, j);
    held.width = s.OperandWidth(j);
    emit_->SetLanes(held.lanes);
    access_->LoadWhole(held.width, held.reg, At(slot));
  }
  emit_->SetLanes(s.lanes);
  return Register(slot);
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
  const bool same =
      held.is_bool && load.dtype == DType::kBool && load.lanes == held.lanes;
  return same ? &held : nullptr;
}

void LoopRegisters::Define(size_t k, Held made) {
  const TapeStep& s = steps_[k];
  const uint16_t d = Result(s);
  Drop(d);
  for (uint16_t other : places_.overlaps[d]) Drop(other);
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
    if (held_[slot].unsaved && NextRead(slot, k) < steps_.size()) {
      Save(slot);
    }
    held_[slot] = Held{};
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
