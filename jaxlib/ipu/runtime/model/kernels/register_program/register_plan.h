// A register program made ready: which values are the same everywhere, where
// every value lives, and the steps in the order they run.

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
  kOnce,  // it is the same everywhere
  kRow,   // the same for all elements of a row
  kBlock,
};

struct Output {
  enum Way : uint8_t {
    kDirect,   // a step writes it where it belongs
    kCopied,   // it is copied at the end of the block
    kUniform,  // one value for all elements of a block
  };
  Way way;
  program::RegisterType type;
  uint32_t width;
  uint16_t slot;          // where its values are
  uint16_t home = 0;      // slot of a buffer, if the caller has none
  bool elements = false;  // its values are stored as elements, `width` bytes
};

// A function's operand, whose place is given with each call.
struct BlockOperand {
  uint16_t operand;
  uint16_t slot;
  uint32_t width;
};

// What a program of one element reads where it is.
struct InPlace {
  uint16_t slot;
  uint32_t base;
  int64_t offset;
  uint32_t width;
};

// A constant, as often as a step reads a value that does not move.
struct alignas(64) Cell {
  char bytes[kUniformBytes];
};

// Steps that have become machine code.
struct NativeRun {
  CodeHandle code;
  std::vector<uint16_t> slots;  // that it reads or writes
};

// Stands for what a step does that is no instruction's.
inline constexpr program::Instruction kUnknown{
    program::Opcode::kLoad, program::RegisterType::kU32, {}, 0};

// Slots in the order of their numbers: `owned` ones whose place in a state's
// memory is fixed, then constants, then those that are set for each block.
struct Plan {
  int64_t size = 0;             // elements of the iteration space
  int64_t block = 0;            // elements at a time
  int64_t row = 0;              // where blocks end at the latest; 0: anywhere
  int64_t grain = 1;            // ranges should begin at multiples of this
  std::vector<size_t> offsets;  // of owned slots in a state's memory
  std::deque<Cell> constants;
  size_t num_slots = 0;
  size_t staging = 0;  // offset of room for raw elements
  size_t bytes = 0;    // of a state's memory, slots included

  std::deque<Source> sources;
  std::vector<Step> uniform_steps;  // once per state
  std::vector<Step> row_steps;      // per block, for one vector
  std::vector<Step> steps;          // per block
  std::vector<NativeRun> native;    // what RunNative among the steps runs
  std::vector<Output> outputs;
  std::vector<BlockOperand> block_operands;  // of functions
  double nanoseconds = 0;

  // For iteration spaces of one element, which loops over scalars are made of:
  // all that EvalOne has to do. Slots are cells, constants, then what is read
  // in place.
  std::vector<InPlace> in_place;
  std::vector<Step> one_steps;
  std::vector<program::Instruction> one_instructions;
};

// What a program runs on. Results only say what may share storage with what:
// a result is the very same elements as an operand, or none of them. Those of a
// function may be any of its operands.
struct Surroundings {
  const std::vector<int64_t>& shape;
  const std::vector<Operand>* operands;  // null: a function of dense blocks,
  size_t num_operands;                   // this many
  // Null: none is an operand. A program with results is evaluated as a whole,
  // block by block: never for fewer elements than a block has.
  const std::vector<Operand>* results;
};

// `code` is checked code. Fails if an operand is of another type than its LOAD.
Status MakePlan(program::RegisterCode code, const Surroundings& surroundings,
                Plan* plan);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PLAN_H_
