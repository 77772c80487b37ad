// Rare sides: jumps over them, and the registers around them.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/value_emitter.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

using program::Opcode;

// Bytes below the stack that belong to a function which calls no others, by the
// ABI of System V.
constexpr size_t kRedZone = 128;

}  // namespace

// Emits a jump if no lane of the vectors needs a side. None if a comparison is
// not known as lanes: there are few mask registers.
std::optional<size_t> ValueEmitter::JumpOver(const ValueSide& side) {
  Mask all = {-1, 0};
  for (copy_ = 0; copy_ < copies_; ++copy_) {
    const Mask lanes = StateOf(side.condition).flags;
    if (lanes.reg < 0) return std::nullopt;
    if (copy_ == 0) {
      all = lanes;
      continue;
    }
    const Mask both = copy_ == 1 ? emit_.NewMask(lanes.width) : all;
    emit_.Combine(side.when ? Opcode::kOr : Opcode::kAnd, both, all, lanes);
    all = both;
  }
  if (copies_ > 1) emit_.Free(all);
  emit_.CompareLanes(all, /*all=*/!side.when);
  return body_.Jump(Condition::kEqual);
}

// Jumps over a side that no lane needs. What is loaded in it is loaded again
// after it.
void ValueEmitter::ComputeSide(const ValueSide& side, int64_t number) {
  const std::vector<State> before = states_;
  const std::optional<size_t> jump = JumpOver(side);
  // Fewer vectors take fewer masks.
  if (!jump && copies_ > 1) emit_.Fail();
  copy_ = 0;
  const std::vector<int> saved =
      manner_.reloads && copies_ == 1 ? SaveUnread(side) : std::vector<int>();
  for (int k = side.begin; k < side.end && !emit_.failed(); ++k) {
    ComputeInAll(k, number);
  }
  copy_ = 0;
  for (size_t k = 0; k < states_.size(); ++k) {
    const auto value = static_cast<int>(k % values_.size());
    State& state = states_[k];
    if (IsIn(side, value) || state.hoisted || state.reg < 0 ||
        state.reg == before[k].reg) {
      continue;
    }
    emit_.Free(state.reg);
    state.reg = -1;
  }
  Restore(saved, side);
  if (jump) body_.Land(*jump);
}

// Whether a value is computed in a side.
bool ValueEmitter::IsIn(const ValueSide& side, int value) const {
  return values_[value].kind == NativeValue::kComputed && value >= side.begin &&
         value < side.end;
}

// A place below the stack, which no signal handler changes.
Address ValueEmitter::RedZone(size_t k) {
  return {.base = Gpr::kRsp,
          .indexed = false,
          .offset = -static_cast<int32_t>((k + 1) * kVectorBytes)};
}

// Frees registers for a side: some that hold what is read after it, but not in
// it. Returns them.
std::vector<int> ValueEmitter::SaveUnread(const ValueSide& side) {
  std::vector<int> saved;
  for (int value = 0; value < side.begin; ++value) {
    const State& state = StateOf(value);
    const bool in_vector = state.reg >= 0 || !IPU_AVX512;
    const int reg = state.reg >= 0 ? state.reg : state.flags.reg;
    if (values_[value].kind != NativeValue::kComputed || reg < 0 ||
        !in_vector || values_[value].last_use < side.end) {
      continue;
    }
    bool read = false;
    for (int k = side.begin; k < side.end; ++k) read |= Reads(k, value);
    if (read || saved.size() == kRedZone / kVectorBytes) continue;
    body_.Vector(x86::kStore, Lanes{kVectorBytes}, reg, 0,
                 RedZone(saved.size()));
    emit_.Free(reg);
    saved.push_back(reg);
  }
  return saved;
}

// Moves values of a side out of registers that were saved, and restores these.
void ValueEmitter::Restore(const std::vector<int>& saved,
                           const ValueSide& side) {
  for (const int reg : saved) emit_.Take(reg);
  for (int value = side.begin; value < side.end; ++value) {
    State& state = StateOf(value);
    for (int* held : {&state.reg, IPU_AVX512 ? nullptr : &state.flags.reg}) {
      if (held == nullptr || *held < 0 ||
          std::find(saved.begin(), saved.end(), *held) == saved.end()) {
        continue;
      }
      const int moved = emit_.NewRegister();
      body_.Vector(x86::kMove, Lanes{kVectorBytes}, moved, 0, *held);
      *held = moved;
    }
  }
  for (size_t k = 0; k < saved.size(); ++k) {
    body_.Vector(x86::kLoad, Lanes{kVectorBytes}, saved[k], 0, RedZone(k));
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
