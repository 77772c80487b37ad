// Single integers in general registers.

#include <algorithm>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Integers of all iterations that have a register; a guess: half of them.
constexpr int kMostPinned = 3;

}  // namespace

bool LoopRegisters::IsPinnedGeneral(Gpr reg) const {
  return std::any_of(pinned_.begin(), pinned_.end(),
                     [reg](const Pinned& p) { return p.general == reg; });
}

// A call keeps none.
void LoopRegisters::PinGeneral(Pinned p) {
  const auto pinned =
      std::count_if(pinned_.begin(), pinned_.end(),
                    [](const Pinned& other) { return other.general; });
  if (calls_ || places_.constant[p.slot] || pinned == kMostPinned) return;
  p.general = NewGeneral();
  emit_->body().Load32(*p.general, At(p.slot));
  held_[p.slot].general = p.general;
  pinned_.push_back(p);
}

void LoopRegisters::UpdateGeneral(const Pinned& p) {
  const std::optional<Gpr> now = held_[p.slot].general;
  if (now == p.general) return;
  if (now) {
    emit_->body().Move32(*p.general, *now);
  } else {
    emit_->body().Load32(*p.general, At(p.slot));
  }
}

void LoopRegisters::DropGeneral(size_t slot) {
  const std::optional<Gpr> general = held_[slot].general;
  if (!general) return;
  const bool shared =
      std::count_if(held_.begin(), held_.end(), [general](const Held& h) {
        return h.general == general;
      }) > 1;
  if (!shared && !IsPinnedGeneral(*general)) general_.Free(*general);
  held_[slot].general.reset();
  if (!held_[slot].in_vector()) held_[slot] = Held{};
}

void LoopRegisters::ForgetClamped(size_t slot) {
  std::erase_if(clamped_, [&](const Clamped& c) {
    if (c.slot != slot) return false;
    general_.Free(c.reg);
    return true;
  });
}

void LoopRegisters::MakeGeneralRoom(size_t k, int needed) {
  while (general_.left() < needed) {
    if (!clamped_.empty()) {
      ForgetClamped(clamped_.front().slot);
      continue;
    }
    const std::optional<size_t> slot = ReadLast(k, [this](const Held& held) {
      return held.general && !IsPinnedGeneral(*held.general);
    });
    if (!slot) return;
    SaveForLater(*slot, k);
    DropGeneral(*slot);
  }
}

Gpr LoopRegisters::NewGeneral() {
  while (general_.left() == 0 && !clamped_.empty()) {
    ForgetClamped(clamped_.front().slot);
  }
  const std::optional<Gpr> reg = general_.New();
  if (!reg) emit_->Fail();
  return reg.value_or(Gpr::kRax);
}

Gpr LoopRegisters::GetGeneral(const TapeStep& s, size_t j) {
  const uint16_t slot = Operand(s, j);
  if (held_[slot].is_bool) Drop(slot);
  Held& held = held_[slot];
  if (held.general) return *held.general;
  const Gpr to = NewGeneral();
  Assembler& body = emit_->body();
  if (const auto constant = places_.ConstantWord(slot)) {
    body.Move32(to, static_cast<int32_t>(*constant));
  } else if (held.in_vector()) {
    emit_->SetLanes(held.lanes);
    body.Vector(x86::kStoreLow, kShortest, Register(slot), 0,
                static_cast<int>(to));
  } else {
    body.Load32(to, At(slot));
    held.lanes = 1;
    held.width = 4;
  }
  held.general = to;
  return to;
}

Gpr LoopRegisters::ShareGeneral(const TapeStep& s, size_t j) {
  const Gpr reg = GetGeneral(s, j);
  if (!IsPinnedGeneral(reg)) return reg;
  const Gpr copy = NewGeneral();
  emit_->body().Move32(copy, reg);
  return copy;
}

Gpr LoopRegisters::Inside(const TapeStep& s, size_t j, int32_t limit) {
  const uint16_t slot = Operand(s, j);
  for (const Clamped& c : clamped_) {
    if (c.slot == slot && c.limit == limit) return c.reg;
  }
  const Gpr index = GetGeneral(s, j), to = NewGeneral();
  Assembler& body = emit_->body();
  body.Move32(to, index);
  body.Compute32(Alu::kCompare, to, limit);
  const size_t outside = body.Jump(Condition::kAbove);
  constexpr int kArithmeticRight = 7;
  Assembler aside;  // to <- to < 0 ? 0 : limit
  aside.Shift32(kArithmeticRight, to, 31);
  aside.Not32(to);
  aside.Compute32(Alu::kAnd, to, limit);
  body.Aside(outside, aside);
  clamped_.push_back({slot, limit, to});
  return to;
}

}  // namespace ipu::model::IPU_SIMD_NS
