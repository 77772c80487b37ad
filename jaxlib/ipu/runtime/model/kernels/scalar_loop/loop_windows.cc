#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_windows.h"

#include <bit>

#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Whether an address can have an index times this.
bool IsScale(int32_t stride) {
  return stride == 1 || stride == 2 || stride == 4 || stride == 8;
}

}  // namespace

void LoopWindows::Forget(uint16_t slot) {
  const auto forget = [&](uint16_t changed) {
    for (Known& known : known_) {
      if (known.slot == changed) known = Known{};
    }
  };
  forget(slot);
  for (uint16_t other : places_.overlaps[slot]) forget(other);
}

// The register that holds index j, moved inside.
Gpr LoopWindows::Inside(const TapeStep& s, size_t j) {
  const int32_t limit = s.window->indices[j].limit;
  const Known wanted{registers_.Operand(s, j), limit};
  const auto* known = std::find(std::begin(known_), std::end(known_), wanted);
  if (known != std::end(known_)) return kIndices[known - known_];
  const Gpr to = kIndices[next_];
  known_[next_] = wanted;
  next_ = (next_ + 1) % std::size(kIndices);
  const int index = registers_.Get(s, j);
  VectorEmitter& emit = registers_.emit();
  const int first = emit.TryNumber(4, 0);
  const int last = emit.TryNumber(4, static_cast<uint32_t>(limit));
  if (first >= 0 && last >= 0 && emit.left() > 0) {
    const int inside = emit.NewRegister();
    body().Vector(x86::kMaxSigned, kShortest, inside, index, first);
    body().Vector(x86::kMinSigned, kShortest, inside, inside, last);
    body().Vector(x86::kStoreLow, kShortest, inside, 0, static_cast<int>(to));
    emit.Free(inside);
    return to;
  }
  constexpr int kNegative = 0x48, kGreater = 0x4f;
  body().Vector(x86::kStoreLow, kShortest, index, 0, static_cast<int>(to));
  body().Zero(Gpr::kRdx);
  body().Test32(to, to);
  body().Move32If(kNegative, to, Gpr::kRdx);
  body().Move32(Gpr::kRdx, limit);
  body().Compare32(to, Gpr::kRdx);
  body().Move32If(kGreater, to, Gpr::kRdx);
  return to;
}

// to <- index j; jumps to Land if it is outside.
void LoopWindows::Check(const TapeStep& s, size_t j, Gpr to) {
  constexpr int kAbove = 0x87;
  const int index = registers_.Get(s, j);
  body().Vector(x86::kStoreLow, kShortest, index, 0, static_cast<int>(to));
  body().Compare32(to, s.window->indices[j].limit);
  outside_.push_back(body().Jump(kAbove));
}

void LoopWindows::Scale(Gpr to, Gpr index, int32_t stride) {
  if (!std::has_single_bit(static_cast<uint32_t>(stride))) {
    return body().Multiply(to, index, stride);
  }
  if (to != index) body().Move(to, index);
  const int by = std::countr_zero(static_cast<uint32_t>(stride));
  if (by > 0) body().ShiftLeft(to, by);
}

Address LoopWindows::Find(const TapeStep& s, uint16_t tensor) {
  const size_t count = s.window->indices.size();
  if (count == 0) return registers_.At(tensor);
  const bool checks = s.kind == TapeStep::kUpdate && s.window->drops;
  // What is loaded, is loaded before any jump.
  for (size_t j = 0; j < count; ++j) registers_.Get(s, j);
  Gpr index = kSum;
  uint8_t scale = 1;
  for (size_t j = 0; j < count; ++j) {
    const int32_t stride = s.window->indices[j].stride;
    Gpr one = j == 0 ? kSum : Gpr::kRcx;
    if (checks) {
      Check(s, j, one);
    } else {
      one = Inside(s, j);
    }
    if (count == 1 && IsScale(stride)) {
      index = one;
      scale = static_cast<uint8_t>(stride);
    } else if (j == 0) {
      Scale(kSum, one, stride);
    } else if (IsScale(stride)) {
      body().AddScaled(kSum, one, stride);
    } else {
      Scale(Gpr::kRcx, one, stride);
      body().Add(kSum, Gpr::kRcx);
    }
  }
  Address at = registers_.At(tensor);
  at.indexed = true;
  at.index = index;
  at.scale = scale;
  return at;
}

void LoopWindows::Land() {
  for (const size_t outside : outside_) body().Land(outside);
  outside_.clear();
}

}  // namespace ipu::model::IPU_SIMD_NS
