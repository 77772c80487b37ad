// Loops over single elements: counters, scalar recurrences, searches, and
// windows that move from turn to turn.
//
// A turn of such a loop is a handful of operations, so preparing each kernel
// anew would take most of the time. Instead every kernel of the loop records
// its steps on a tape, whose slots are bound to memory once for all turns.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"

namespace ipu::model::IPU_SIMD_NS {

// A few bytes of a tensor.
struct Item {
  uint32_t base;
  int64_t offset;
  uint32_t bytes;
};

// Where an output of a plan goes.
struct ItemStore {
  Item to;
  ConvertFn convert;  // null if register values are elements
};

class Tape : public model::Tape {
 public:
  static constexpr size_t kMostSlots = 512;

  // `storage` as in model/parallel_copy.h.
  explicit Tape(std::span<const uint32_t> storage) : storage_(storage) {}

  // Each appends what one kernel does; false if there are too many slots.
  bool Evaluate(const Plan& plan, std::span<const ItemStore> stores);
  bool Copy(Item from, Item to);
  // A step of a kernel's own; it finds `what` in Step::imm, memory in
  // Frame::bases.
  void Call(StepFn fn, const void* what);

  // Points `slots` at memory and at `cells`; both have kMostSlots elements.
  void Bind(const Memory& memory, char** slots, uint64_t* cells) const;

  std::vector<Step> TakeSteps() { return std::exchange(steps_, {}); }

 private:
  struct Slot {
    enum Kind : uint8_t { kCell, kConstant, kMemory };
    Kind kind = kCell;
    Item item{};
    const char* constant = nullptr;
  };

  uint16_t Add(Slot slot);
  bool Overlap(const Item& a, const Item& b) const;
  bool ReadLater(const Plan& plan, std::span<const Step> steps, size_t producer,
                 uint16_t first, const Item& item) const;

  std::span<const uint32_t> storage_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
