// A register program prepared for execution: steps in the order they run,
// hoisted where they are invariant, with a place for every value.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PLAN_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// How often a value is computed.
enum class Rate : uint8_t {
  kOnce,  // uniform: the same for all elements
  kRow,   // the same for all elements of a row
  kBlock,
};

struct Output {
  enum Way : uint8_t {
    kDirect,   // a step writes it to its destination
    kCopied,   // it is copied at the end of the block
    kUniform,  // one value for all elements of a block
  };
  Way way;
  program::RegisterType type;
  uint32_t width;
  uint16_t slot;          // of its values
  uint16_t home = 0;      // of the buffer used if the caller provides none
  bool elements = false;  // stored as elements of `width` bytes
  // How many outputs from this one on lie alternately in memory, as the planes
  // of complex numbers do, and the coordinates of points; 1 for the others of
  // these.
  size_t alternate = 1;
  bool alternates = false;  // machine code stores it so, `width` bytes apart
  bool moved = true;        // see MovedValues
};

// An operand of a function; each call provides its address.
struct BlockOperand {
  uint16_t operand;
  uint16_t slot;
  uint32_t width;
};

// An operand of a one-element program that is read in place.
struct InPlace {
  uint16_t slot;
  uint32_t base;
  int64_t offset;
  uint32_t width;
};

// A constant in all lanes of the slot of a uniform value.
struct alignas(64) Cell {
  char bytes[kUniformBytes];
};

// Steps compiled to machine code.
struct NativeRun {
  CodeHandle code;
  std::vector<uint16_t> slots;  // that it reads or writes
};

// The instruction of a step that executes none.
inline constexpr program::Instruction kUnknown{
    program::Opcode::kLoad, program::RegisterType::kU32, {}, 0};

// Slots are numbered in this order: those that a state owns, at fixed offsets
// in its memory; constants; and those that are set for each block.
struct Plan {
  int64_t size = 0;             // elements of the iteration space
  int64_t block = 0;            // the most elements in a block
  int64_t row = 0;              // blocks do not cross multiples of this; 0: any
  int64_t grain = 1;            // ranges should begin at multiples of this
  int64_t group = 1;            // ranges and blocks begin at multiples of this
  std::vector<size_t> offsets;  // of owned slots in a state's memory
  std::deque<Cell> constants;
  size_t num_slots = 0;
  size_t staging = 0;  // offset of the scratch for unconverted elements
  size_t bytes = 0;    // of a state's memory, slots included

  std::deque<Source> sources;
  std::vector<Step> uniform_steps;  // run once per state
  std::vector<Step> row_steps;      // run per block, for one vector
  std::vector<Step> steps;          // run per block
  std::vector<NativeRun> native;    // the code that RunNative steps run
  bool streams = false;             // some of it stores past the caches
  std::vector<Output> outputs;
  std::vector<BlockOperand> block_operands;  // of functions
  double nanoseconds = 0;

  // For iteration spaces of one element, as in loops over scalars: everything
  // that evaluate/one_element.cc does. Slots are cells, constants, then
  // operands that are read in place.
  std::vector<InPlace> in_place;
  std::vector<Step> one_steps;
  std::vector<program::Instruction> one_instructions;
};

// The operands and results of a program.
//
// Results only serve to tell which operands a program overwrites. A result has
// the elements of an operand at the same addresses, or it overlaps no operand:
// so writing an element may overwrite that element of an operand, but no other.
// The results of a function may be stored over any of its operands.
struct ProgramContext {
  const std::vector<int64_t>& shape;
  const std::vector<Operand>* operands;  // null: a function of dense blocks,
  size_t num_operands;                   // this many
  // Null: no result shares storage with an operand. A program with results is
  // only evaluated in whole blocks, never for part of one.
  const std::vector<Operand>* results;
};

// `code` must have been checked. Fails if an operand's type differs from that
// of its LOAD.
Status MakePlan(program::RegisterCode code, const ProgramContext& context,
                Plan* plan);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PLAN_H_
