// Which general registers are free, in the function of a loop.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_REGISTERS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_REGISTERS_H_

#include <bit>
#include <cstdint>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"

namespace ipu::model::IPU_SIMD_NS {

// Of those that calls do not keep. rax, rcx and rdx are for use within a step.
class GeneralRegisters {
 public:
  // No register if none is left.
  std::optional<Gpr> New() {
    for (const Gpr r : kAll) {
      if (Take(r)) return r;
    }
    return std::nullopt;
  }
  // Takes this one; false if it is in use.
  bool Take(Gpr r) {
    const bool is_free = (used_ & Bit(r)) == 0;
    used_ |= Bit(r);
    return is_free;
  }
  void Free(Gpr r) { used_ &= ~Bit(r); }
  void FreeAll() { used_ = 0; }
  int left() const {
    return static_cast<int>(sizeof kAll) - std::popcount(used_);
  }

 private:
  static constexpr Gpr kAll[] = {Gpr::kR9, Gpr::kR10, Gpr::kR11,
                                 Gpr::kR8, Gpr::kRdi, Gpr::kRsi};
  static uint32_t Bit(Gpr r) { return uint32_t{1} << static_cast<int>(r); }

  uint32_t used_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_REGISTERS_H_
