// Which steps of a loop compute single 32-bit integers in general registers.
//
// What indices, counters and comparisons are needed for, addresses and jumps,
// takes them from there; to move a value from a vector register takes as long
// as three of its operations. So an integer is in a general register if all
// that it is computed from and for can be, and if an index depends on it, even
// so.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_STEPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

class GeneralSteps {
 public:
  GeneralSteps(std::span<const TapeStep> steps, const TapePlaces& places);

  // Whether step k is one of them.
  bool Is(size_t k) const { return is_[k]; }
  // Whether operand j of step k is best in a general register.
  bool Takes(size_t k, size_t j) const { return holds_[operands_[k][j]]; }
  // Whether what an iteration finds in a slot, the first of its location, is.
  bool Holds(uint16_t slot) const { return holds_[slot]; }

 private:
  // The value that a step reads or writes. Those that an iteration finds are
  // numbered as their slots, as are those that it leaves there for the next
  // one, then those that each step computes: memory is used for several of
  // them.
  using Value = size_t;

  void NumberValues();
  void BindIndices();
  void KeepParts();
  bool Change();

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  std::vector<std::vector<Value>> operands_;  // by step
  std::vector<Value> results_;                // by step
  std::vector<bool> is_;
  // By value. A constant is one of them.
  std::vector<bool> holds_, written_;
  std::vector<bool> bound_;  // an index depends on it
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_GENERAL_STEPS_H_
