// Loops over single elements: counters, scalar recurrences, searches, and
// windows that move from iteration to iteration.
//
// An iteration of such a loop is a handful of operations, so setting up each
// kernel would dominate its time. Instead, every kernel of the loop records its
// steps once on a tape, whose slots are bound to memory for all iterations, and
// runs of steps are compiled to machine code where possible.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

// A few contiguous bytes of a tensor.
struct Item {
  uint32_t base;
  int64_t offset;
  uint32_t bytes;
  bool operator==(const Item&) const = default;
};

// The destination of a plan's output.
struct ItemStore {
  Item to;
  DType dtype;  // kNone: stored as register values, without conversion
};

class Tape : public model::Tape {
 public:
  // A limit: slots and cells are on the stack, 4 KiB of each.
  static constexpr size_t kMostSlots = 512;

  // `storage` is as in model/parallel_copy.h.
  explicit Tape(std::span<const uint32_t> storage) : storage_(storage) {}

  // Each of these appends the work of a kernel. They return false if the tape
  // has too few slots left.
  bool Evaluate(const Plan& plan, std::span<const ItemStore> stores);
  bool Copy(Item from, Item to);
  // A kernel-specific step. Its payload is `what`; memory is in
  // Frame::bases.
  void Call(StepFn fn, const void* what);
  // Evaluates `count` elements with a plan that is a single piece of machine
  // code, keeps no values of its own and stores its outputs directly.
  bool Run(const Plan& plan, std::span<const Item> outputs, uint32_t count);

  // Keeps alive a program whose plan was recorded.
  void Keep(RegisterProgram program) { kept_.push_back(std::move(program)); }
  // Whether the tape has this many slots left.
  bool HasRoom(size_t slots) const {
    return slots_.size() + slots <= kMostSlots;
  }

  // Points `slots` at memory and `cells`, which have kMostSlots elements each.
  void Bind(const Memory& memory, char** slots, uint64_t* cells) const;

  // Returns and removes the steps recorded so far.
  std::vector<Step> TakeSteps();

 private:
  struct Slot {
    enum Kind : uint8_t { kCell, kConstant, kMemory };
    Kind kind = kCell;
    Item item{};
    const char* constant = nullptr;
  };

  uint16_t Add(Slot slot);
  void AddConstants(const Plan& plan, size_t at);
  bool Overlap(const Item& a, const Item& b) const;
  bool ReadLater(const Plan& plan, std::span<const TapeStep> steps,
                 size_t producer, uint16_t first, const Item& item) const;
  std::optional<TapePlaces> Places() const;

  std::span<const uint32_t> storage_;
  std::vector<Slot> slots_;
  std::vector<TapeStep> steps_;
  std::vector<CodeHandle> code_;
  std::vector<RegisterProgram> kept_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
