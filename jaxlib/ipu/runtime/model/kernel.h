// How the model runs one compute set: a kernel over the whole iteration space.
//
// A vertex reads only what was exchanged to its tile before its compute set
// started, so computing all vertices of a compute set as one vectorised loop
// over the logical tensors gives what running them tile by tile would. A
// kernel is made once, when a program is loaded, and holds everything that can
// be known then; Run only follows pointers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/thread_pool.h"
#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// Where the tensors of one run are: bases[0] is the arena, bases[1] the
// constants, then the arguments, then the results.
struct Memory {
  char* const* bases;
};

// A tensor's storage as strides over its own dimensions.
struct View {
  uint32_t base = 0;       // index into Memory::bases
  int64_t offset = 0;      // bytes from there to element (0, ..., 0)
  uint8_t dtype = 0;       // PJRT_Buffer_Type
  uint32_t item_size = 0;  // bytes
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements; 0 and negative ones occur
  // Element (0, ..., 0) of what never changes and is known by now, or null.
  const char* constant = nullptr;

  char* Data(const Memory& memory) const { return memory.bases[base] + offset; }
};

// An operand or result of a compute set.
struct Operand {
  View view;
  // For each dimension of the iteration space the view's dimension that goes
  // with it, or -1 where the operand is broadcast.
  std::vector<int32_t> dims;

  // Elements to step for one step along iteration dimension d.
  int64_t Stride(size_t d) const {
    return dims[d] < 0 ? 0 : view.strides[dims[d]];
  }
};

// What a codelet's factory is given. The loader has checked that every index
// that the accesses can reach lies inside its storage; a factory checks its
// own fields and refuses what it cannot run.
struct ComputeSet {
  const program::Execute& step;
  std::vector<int64_t> shape;  // the iteration space
  std::vector<Operand> operands;
  std::vector<Operand> results;
};

// The steps of kernels that work on single elements; each instruction set has
// its own (kernels/scalar_loop/).
class Tape {
 public:
  virtual ~Tape() = default;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void Run(const Memory& memory, ThreadPool& threads) const = 0;

  // Appends to a tape what Run does; false if that is not on single elements.
  virtual bool Record(Tape&) const { return false; }
};

// A loop that runs from a tape.
class ScalarLoop {
 public:
  virtual ~ScalarLoop() = default;
  // Iterates as long as the loop's test holds, or `count` times if it has none.
  // Returns the number of iterations.
  virtual uint64_t Run(const Memory& memory, uint64_t count) const = 0;
};

using KernelOr = StatusOr<std::unique_ptr<Kernel>>;

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_
