// What each step of a tape emits, unless it ends a part of the code: calls,
// branches and nested loops are in loop_code.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_STEP_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_STEP_EMITTER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/general_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_windows.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// Registers that have to be free before a step: for its operands, its result
// and its own use. Guesses: compiled again with more if they do not suffice.
inline constexpr int kFewFree = 5, kManyFree = 8;

// Whether a step is machine code without a call.
bool IsCode(const TapeStep& s);

class StepEmitter {
 public:
  // `free`: one of the above.
  StepEmitter(std::span<const TapeStep> steps, LoopRegisters& registers,
              int free)
      : steps_(steps),
        free_(free),
        registers_(registers),
        windows_(registers),
        general_(steps, registers, windows_) {}

  // Emits step k, for which IsCode.
  void Emit(size_t k);

 private:
  using Held = LoopRegisters::Held;

  VectorEmitter& emit() { return registers_.emit(); }
  Address AtOperand(const TapeStep& s, size_t j);
  int Needed(const TapeStep& s) const;
  void Update(size_t k);
  Gpr LoadSmall(DType dtype, Address at);
  void StoreSmall(DType dtype, Gpr value, Address at);
  void Keep(const Held& value, Held& made);
  uint8_t SelectedLanes(size_t k) const;
  void CompareSpread(const program::Instruction& i, uint8_t lanes, Mask mask,
                     int a, int b);
  void Compute(size_t k, Held& made);
  bool CombineMasks(const TapeStep& s, Held& made);
  void Select(const TapeStep& s, Held& made);

  const std::span<const TapeStep> steps_;
  const int free_;
  LoopRegisters& registers_;
  LoopWindows windows_;
  GeneralEmitter general_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_STEP_EMITTER_H_
