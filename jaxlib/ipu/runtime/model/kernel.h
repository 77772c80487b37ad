// A compute set as the model runs it: one kernel over its whole iteration
// space.
//
// A vertex reads only what was exchanged to its tile before its compute set
// started. Computing all vertices of a compute set as one vectorised loop over
// the logical tensors therefore gives the same result as running them tile by
// tile. A kernel is created once, when a program is loaded, and precomputes
// everything that is known then; Run only follows pointers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/thread_pool.h"
#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// The base pointers of one run: the arena, the constants, then the arguments,
// then the results. `partition` is the number of its device among those that
// run the program together.
struct Memory {
  char* const* bases;
  uint32_t partition = 0;
};

// Indices into Memory::bases.
inline constexpr uint32_t kArenaBase = 0;
inline constexpr uint32_t kConstantsBase = 1;
inline constexpr uint32_t kFirstArgumentBase = 2;

// Whether two bases may point into the same storage. The arena and the
// constants share none with other bases. Arguments and results may, since a
// result may take the memory of a donated argument; which of them do is not
// known to a kernel, so it has to expect it of any two. A kernel that is run
// with bases of its own (bands.cc) may rely on this, too.
constexpr bool MayAlias(uint32_t a, uint32_t b) {
  return a == b || (a >= kFirstArgumentBase && b >= kFirstArgumentBase);
}

// A tensor's storage as strides over its own dimensions.
struct View {
  uint32_t base = 0;   // index into Memory::bases
  int64_t offset = 0;  // bytes from there to element (0, ..., 0)
  DType dtype = DType::kNone;
  uint32_t item_size = 0;  // bytes
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; may be 0 or negative

  char* Data(const Memory& memory) const { return memory.bases[base] + offset; }
};

// An operand or result of a compute set.
struct Operand {
  View view;
  // The view's dimension for each dimension of the iteration space, or -1 where
  // the operand is broadcast along it.
  std::vector<int32_t> dims;
  // Of a result: large, and not read again by the program. Stores then may
  // bypass the caches (loader.cc).
  bool streams = false;
  // Of indices: Gather and Scatter add this to negative ones (redirects.h).
  int64_t index_wrap = 0;

  // The view's stride, in elements, along iteration dimension d.
  int64_t Stride(size_t d) const {
    return dims[d] < 0 ? 0 : view.strides[dims[d]];
  }
};

// The input of a codelet's factory. The loader has checked that all accesses
// stay within their storage. The factory checks the codelet's own fields and
// returns an error for what it cannot run.
struct ComputeSet {
  const program::Execute& step;
  std::vector<int64_t> shape;  // the iteration space
  std::vector<Operand> operands;
  std::vector<Operand> results;
};

// Records the steps of kernels that work on single elements; each instruction
// set has its own implementation (kernels/scalar_loop/).
class Tape {
 public:
  virtual ~Tape() = default;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void Run(const Memory& memory, ThreadPool& threads) const = 0;

  // Appends the work of Run to a tape. Returns false if the kernel has no
  // steps, as most that work on more than a few elements, or the tape no room.
  virtual bool Record(Tape&) const { return false; }
};

// A loop that is run from a tape.
class ScalarLoop {
 public:
  virtual ~ScalarLoop() = default;
  // Evaluates the condition before the first iteration, if there is one.
  virtual void Test(const Memory& memory, ThreadPool& threads) const = 0;
  // Runs `most` > 0 iterations, or up to and including the one after which the
  // condition no longer holds. Returns their number.
  virtual uint64_t Run(const Memory& memory, ThreadPool& threads,
                       uint64_t most) const = 0;
};

using KernelOr = StatusOr<std::unique_ptr<Kernel>>;

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNEL_H_
