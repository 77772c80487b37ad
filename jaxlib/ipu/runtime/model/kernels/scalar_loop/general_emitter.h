// What the steps emit that compute in general registers (general_steps.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_EMITTER_H_

#include <cstddef>
#include <span>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_windows.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

class GeneralEmitter {
 public:
  GeneralEmitter(std::span<const TapeStep> steps, LoopRegisters& registers,
                 LoopWindows& windows)
      : steps_(steps), registers_(registers), windows_(windows) {}

  // Emits step k, for which LoopRegisters::IsGeneral.
  void Emit(size_t k);

 private:
  using Held = LoopRegisters::Held;

  Assembler& body() { return registers_.emit().body(); }
  const Held& HeldOf(const TapeStep& s, size_t j) const {
    return registers_.held(registers_.Operand(s, j));
  }
  int Needed(const TapeStep& s) const;
  void Load(const TapeStep& s, Held& made);
  void Store(size_t k, Held& made);
  void Compute(size_t k, Held& made);
  void ComputeIn(Gpr d, const TapeStep& s);
  bool ComputeFused(Gpr d, const TapeStep& s);
  void Compare(size_t k, Held& made);
  void Select(Gpr d, const TapeStep& s);
  void Move(Gpr d, const TapeStep& s, size_t j);
  void Apply(Alu op, Gpr d, const TapeStep& s, size_t j);
  void Add(Gpr d, const TapeStep& s);
  void Multiply(Gpr d, const TapeStep& s);
  void MultiplyBy(Gpr d, const TapeStep& s, size_t j);
  void Extreme(bool max, Gpr d, const TapeStep& s, size_t j);
  void Divide(Gpr d, const TapeStep& s);
  void DivideBy(Gpr d, const TapeStep& s);
  bool KeepsFlags(size_t k, uint16_t compared) const;
  size_t FlagsEnd(size_t k, uint16_t compared) const;
  bool StaysInFlags(size_t k) const;

  const std::span<const TapeStep> steps_;
  LoopRegisters& registers_;
  LoopWindows& windows_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_EMITTER_H_
