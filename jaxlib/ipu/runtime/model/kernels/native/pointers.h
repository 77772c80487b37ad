// The general registers in which machine code keeps the addresses of blocks and
// of operands in memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_POINTERS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_POINTERS_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"

namespace ipu::model::IPU_SIMD_NS {

// Whether the places of two operands are always as far from each other.
bool MoveAlike(const StridedIterator& a, const StridedIterator& b);

class Pointers {
 public:
  explicit Pointers(VectorEmitter& emit) : emit_(emit) {}

  // The block in a slot. With a step, that of the current group, if these are
  // so many bytes apart. Changes rcx if no register is left.
  Gpr OfSlot(int slot, int64_t step = 0);
  // The first element of a dense operand, or else the start of the current
  // group, which has this many elements.
  Address OfSource(const Source& source, int64_t elements);

  // Emits the instructions before the loop, which need rax to be free and rsi
  // to hold the slots; those between groups; and those at the end.
  void Prepare(Assembler& a) const;
  void Advance(Assembler& a) const;
  void Restore(Assembler& a) const;

 private:
  struct Pointer {
    int slot;
    const Source* source;  // null: a slot
    int32_t step;          // from group to group
  };
  void Point(Assembler& a, size_t k) const;

  VectorEmitter& emit_;
  std::vector<Pointer> pointers_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_POINTERS_H_
