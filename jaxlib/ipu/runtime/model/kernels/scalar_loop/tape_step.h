// A step on the tape of a loop over few elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// Where a window of a tensor starts: at one index, or the sum of several.
struct WindowStart {
  struct Index {
    int32_t limit;   // the highest that is valid
    int32_t stride;  // bytes per index
  };
  std::vector<Index> indices;
  // Windows that do not fit are not written. Otherwise, and if they are read,
  // they are moved inside.
  bool drops = false;
};

struct TapeLoop;

struct TapeStep {
  enum Kind : uint8_t {
    kCompute,  // `instruction`
    kLoad,     // elements of another type than they have in a register
    kSpread,   // one value to all lanes
    kSum,      // of all lanes, of the type of `instruction`, to one value
    kStore,    // as elements of another type
    kCopy,     // of an element of 1 or 2 bytes, kU8 or kU16
    kSlice,    // a window of a tensor: operand 0 is the first of its indices,
               // which follow each other, operand 1 the tensor
    kUpdate,   // the same, written: operand 1 is the new elements, d the tensor
    kOpaque,   // a call of `step.fn`, which may access all memory, but reads
               // no slot
    kSwitch,   // selects one of the branches that follow: operand 0 is a scalar
               // of `dtype`, kBool or kI32
    kBranch,   // the begin of a branch: operand 0 is its count, of 64 bits
    kJoin,     // the end of the branches
  };
  Step step;
  program::Instruction instruction = kUnknown;
  Kind kind = kOpaque;
  bool last = false;   // kBranch: of the last
  uint8_t lanes = 1;   // a power of two, at most a vector
  uint32_t width = 4;  // bytes in a register, unless kCompute or kCopy
  // kLoad, kStore, kCopy: of the elements. Of a window that is one element of 1
  // or 2 bytes, kU8 or kU16: it is copied from memory to memory.
  DType dtype = DType::kNone;
  bool moved = true;                    // kLoad: as in Source
  bool negative = true;                 // kSum: some lanes may be, or -0
  const WindowStart* window = nullptr;  // kSlice, kUpdate
  const TapeLoop* loop = nullptr;       // kOpaque: a nested loop

  // Whether it accesses slots as Step says.
  bool IsOnSlots() const { return kind < kOpaque; }
  // How many slots it reads in registers or, of elements of another type, in
  // memory. An opaque step reads none, as there may be none.
  size_t NumOperands() const;
  // Their slots. The indices of a window are its first operands.
  uint16_t OperandSlot(size_t operand) const;
  // Whether it reads them in registers; then as many bytes of as many lanes.
  bool ReadsRegister(size_t operand) const;
  uint32_t OperandWidth(size_t operand) const;
  uint8_t OperandLanes(size_t operand) const;
  // Whether the result is in a register; then of what size.
  bool GivesRegister() const;
  uint32_t ResultWidth() const;
  uint8_t ResultLanes() const;

 private:
  bool IsIndex(size_t operand) const {
    return window != nullptr && operand < window->indices.size();
  }
};

// The frame of a step: frames[FrameOf(step.lanes)].
inline int FrameOf(uint32_t lanes) { return std::countr_zero(lanes); }

// The steps of a loop. Those of the condition, which are run once before the
// first iteration, are also at the end of the body.
struct TapeLoop {
  std::vector<TapeStep> condition, body;
  // The slot of a boolean: the loop ends after an iteration that leaves it
  // false.
  std::optional<uint16_t> predicate;
  // Of a nested loop: its iterations or, if it has a predicate, the slot to
  // which they are added, as 64 bits.
  uint64_t trips = 0;
  uint16_t count = 0;
};

// The locations of a tape's slots.
struct TapePlaces {
  // Its distance from an element of Memory::bases or, of a cell, from the first
  // slot; kElsewhere: only the slot itself has the address.
  static constexpr int64_t kSlotsBase = -1, kElsewhere = -2;
  struct Place {
    int64_t base = kElsewhere;
    int32_t offset = 0;
  };
  std::vector<Place> place;
  // The first slot with the same location as each slot.
  std::vector<uint16_t> same;
  // Whether it is a tensor's, and so outlives an iteration.
  std::vector<bool> in_memory;
  // The vector that a constant has in all lanes; null: it is none.
  std::vector<const char*> constant;
  // For the first slot of each location: those of others that it overlaps.
  std::vector<std::vector<uint16_t>> overlaps;

  // The bits of a constant of 4 bytes.
  std::optional<uint32_t> ConstantWord(uint16_t slot) const {
    if (constant[slot] == nullptr) return std::nullopt;
    uint32_t bits;
    std::memcpy(&bits, constant[slot], sizeof bits);
    return bits;
  }
};

// Runs up to `most` iterations. Returns their number.
using LoopFn = uint64_t (*)(char* const* slots, const Frame* frames,
                            uint64_t most);

// The same, step by step: at most `most` iterations, and a nested loop.
// `frames` are those of a LoopFn.
uint64_t RunIterations(const TapeLoop& loop, const Frame* frames,
                       uint64_t most);
void RunNested(const TapeLoop& loop, const Frame* frames);
// Runs steps once.
void RunSteps(const std::vector<TapeStep>& steps, const Frame* frames);

// Compiles a loop, the nested ones included, to a LoopFn. It must stay where it
// is. Returns no code if the registers do not suffice.
std::vector<uint8_t> CompileLoop(const TapeLoop& loop,
                                 const TapePlaces& places);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_TAPE_STEP_H_
