#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_windows.h"

#include <bit>

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Whether an address can have an index times this.
bool IsScale(int32_t stride) {
  return stride == 1 || stride == 2 || stride == 4 || stride == 8;
}

}  // namespace

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
  if (checks) {
    for (size_t j = 0; j < count; ++j) registers_.GetGeneral(s, j);
  }
  Gpr index = kSum;
  uint8_t scale = 1;
  for (size_t j = 0; j < count; ++j) {
    const auto [limit, stride] = s.window->indices[j];
    const Gpr one =
        checks ? registers_.GetGeneral(s, j) : registers_.Inside(s, j, limit);
    if (checks) {
      body().Compute32(Alu::kCompare, one, limit);
      outside_.push_back(body().Jump(Condition::kAbove));
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
