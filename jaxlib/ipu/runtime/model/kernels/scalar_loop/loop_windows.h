// The addresses of windows at run-time indices, in the function of a loop.
//
// Indices that were moved inside stay in general registers: windows of several
// tensors often start at the same one.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

class LoopWindows {
 public:
  explicit LoopWindows(LoopRegisters& registers) : registers_(registers) {}

  // Emits what computes the address of a step's window of the tensor in a slot.
  // If the window is not to be written, that jumps to Land.
  Address Find(const TapeStep& s, uint16_t tensor);
  void Land();

 private:
  // The sum of the offsets of all indices.
  static constexpr Gpr kSum = Gpr::kRax;

  void Scale(Gpr to, Gpr index, int32_t stride);
  Assembler& body() { return registers_.emit().body(); }

  LoopRegisters& registers_;
  std::vector<size_t> outside_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_WINDOWS_H_
