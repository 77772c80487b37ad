// The addresses of windows at run-time indices, in the function of a loop.
//
// Indices are computed in vector registers, as everything else is, and moved to
// general registers, which hold the last few of them: windows of several
// tensors often start at the same one.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

class LoopWindows {
 public:
  explicit LoopWindows(LoopRegisters& registers, const TapePlaces& places)
      : registers_(registers), places_(places) {}

  // Emits what computes the address of a step's window of the tensor in a slot.
  // If the window is not to be written, that jumps to Land.
  Address Find(const TapeStep& s, uint16_t tensor);
  void Land();

  // The general registers hold no index any more, or none that was read from a
  // slot.
  void Forget() { std::fill(std::begin(known_), std::end(known_), Known{}); }
  void Forget(uint16_t slot);

 private:
  // An index that was moved inside.
  struct Known {
    int slot = -1;
    int32_t limit = 0;
    bool operator==(const Known&) const = default;
  };
  static constexpr Gpr kIndices[] = {Gpr::kR9, Gpr::kR10};
  // The sum of the offsets of all indices.
  static constexpr Gpr kSum = Gpr::kR11;

  Gpr Inside(const TapeStep& s, size_t j);
  void Check(const TapeStep& s, size_t j, Gpr to);
  void Scale(Gpr to, Gpr index, int32_t stride);
  Assembler& body() { return registers_.emit().body(); }

  LoopRegisters& registers_;
  const TapePlaces& places_;
  Known known_[std::size(kIndices)];
  size_t next_ = 0;  // the register that is given up for another index
  std::vector<size_t> outside_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_
