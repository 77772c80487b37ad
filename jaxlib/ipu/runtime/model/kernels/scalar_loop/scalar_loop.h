// Loops over few elements: counters, recurrences, searches, and windows that
// move from iteration to iteration.
//
// An iteration of such a loop is a handful of operations, so setting up each
// kernel would dominate its time. Instead, every kernel of the loop records its
// steps once on a tape, whose slots are bound to memory for all iterations, and
// the tape is compiled to one function, the loop included (loop_code.cc).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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
  // A limit: slots and cells are on the stack, 16 and 128 KiB of them.
  static constexpr size_t kMostSlots = 2048;
  // A cell is the place of a value between two steps: one vector.
  static constexpr size_t kCellBytes = 64;
  // What a run needs.
  struct Room {
    char* slots[kMostSlots];
    alignas(64) char cells[kMostSlots * kCellBytes];
  };

  // `storage` is as in model/parallel_copy.h.
  explicit Tape(std::span<const uint32_t> storage) : storage_(storage) {}

  // Each of these appends the work of a kernel. They return false if the tape
  // has too few slots left.
  bool Evaluate(const Plan& plan, std::span<const ItemStore> stores) {
    return Evaluate(plan, stores, 1, {});
  }
  // Evaluates a plan of one element for `lanes` consecutive ones. `uniform` has
  // the slots of the plan's operands that are the same for all of them.
  bool Evaluate(const Plan& plan, std::span<const ItemStore> stores,
                uint8_t lanes, std::span<const uint16_t> uniform);
  bool Copy(Item from, Item to);
  // Whether Copy supports this many bytes.
  static bool IsFew(int64_t bytes);
  // The sum of adjacent elements, or of their squares, as MonoidFold computes
  // it. Their type has to be a register type. Also false if they are not as
  // many as a vector, or a half of one, has.
  bool Sum(Item from, DType dtype, bool squares, Item to);
  // The sum of the products of pairs of elements, one after the other. Their
  // type has to be a register type.
  bool SumOfProducts(DType dtype, std::span<const std::pair<Item, Item>> pairs,
                     Item to);
  // Copies a window of a tensor to dense elements, or these to a window: a
  // single element or a few words, contiguous on both sides, with indices of 32
  // bits. `tensor` is where the window is if they are 0. Elements have
  // `item_size` bytes. `start` must stay where it is. The tape has to have room
  // for SlotsOfWindow.
  void Slice(std::span<const Item> indices, Item tensor,
             const WindowStart& start, Item to, uint32_t item_size);
  void Update(std::span<const Item> indices, Item tensor,
              const WindowStart& start, Item from, uint32_t item_size);
  // The same, but combines the elements with those that the window has, which
  // are the first operand. Their type has to be that of `combine`.
  void Combine(std::span<const Item> indices, Item tensor,
               const WindowStart& start, Item from,
               const program::Instruction& combine);
  // A kernel-specific step. Its payload is `what`, its slot d is `pointer`;
  // memory is in Frame::bases.
  void Call(StepFn fn, const void* what, uint16_t pointer = 0);
  // A slot of a pointer that whoever binds the tape sets, or of an item;
  // nothing if the tape has no slot left.
  std::optional<uint16_t> AddPointer();
  std::optional<uint16_t> AddItem(Item item);
  // A nested loop.
  void Loop(TapeLoop loop);
  // Begins steps of which one branch is run: Branch begins each of them, and
  // Join ends the last. They return false if the tape has too few slots left.
  bool Switch(Item selector, DType dtype);
  bool Branch(Item count, bool last);
  void Join();
  // Evaluates `count` elements with a plan that is a single piece of machine
  // code, keeps no values of its own and stores its outputs directly.
  bool Run(const Plan& plan, std::span<const Item> outputs, uint32_t count);

  // Keeps alive a program whose plan was recorded.
  void Keep(RegisterProgram program) { kept_.push_back(std::move(program)); }
  // The most slots that an evaluation takes: each value may be spread over the
  // lanes, and each load and store has one of its own.
  static size_t SlotsOf(const Plan& plan, size_t num_stores) {
    return 2 * plan.num_slots + plan.sources.size() + 3 * num_stores;
  }
  // The most slots that a window of so many bytes takes.
  static size_t SlotsOfWindow(int64_t bytes, size_t indices);
  // Whether the tape has this many slots left.
  bool HasRoom(size_t slots) const {
    return slots_.size() + slots <= kMostSlots;
  }

  // Points the slots at memory and at the cells.
  void Bind(const Memory& memory, Room& room) const;

  // What has been recorded so far, and a return to that state.
  struct State {
    size_t slots, steps, kept, loops;
  };
  State Save() const {
    return {slots_.size(), steps_.size(), kept_.size(), loops_.size()};
  }
  void Restore(const State& state);
  // Returns the steps recorded so far and replaces them.
  std::vector<TapeStep> TakeSteps(std::vector<TapeStep> by = {}) {
    return std::exchange(steps_, std::move(by));
  }
  TapePlaces Places() const;

 private:
  struct Slot {
    enum Kind : uint8_t { kCell, kConstant, kMemory, kPointer };
    Kind kind = kCell;
    Item item{};
    const char* constant = nullptr;
  };

  uint16_t Add(Slot slot);
  uint16_t AddIndices(std::span<const Item> indices);
  template <typename F>
  void ForWindow(Item dense, Item tensor, const WindowStart& start,
                 uint32_t item_size, const F& add);
  void AddConstants(const Plan& plan, size_t at);
  bool Overlap(const Item& a, const Item& b) const;
  bool ReadLater(const Plan& plan, std::span<const TapeStep> steps,
                 size_t producer, uint16_t first, const Item& item) const;

  std::span<const uint32_t> storage_;
  std::vector<Slot> slots_;
  std::vector<TapeStep> steps_;
  std::vector<RegisterProgram> kept_;
  std::vector<std::unique_ptr<const TapeLoop>> loops_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_LOOP_H_
