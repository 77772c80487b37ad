// Runs a register program over an iteration space and stores its outputs in
// tensors: the one way to run a Map.
//
// There are several ways inside. MakeEvaluator chooses among them, once, when a
// program is loaded.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_EVALUATOR_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_EVALUATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model::IPU_SIMD_NS {

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Computes elements [begin, end) of the iteration space, in row-major order,
  // and stores their results. Each element is read by all outputs before any
  // output of it is written.
  virtual void Run(const Memory& memory, int64_t begin, int64_t end) const = 0;

  // Appends a run over the whole iteration space to a tape, which must not
  // outlive the evaluator. Returns false if the tape has no room.
  virtual bool Record(Tape& tape) const = 0;

  // The number of elements.
  virtual int64_t size() const = 0;
  // Estimated time per element on one thread.
  virtual double nanoseconds() const = 0;
  // Threads that divide the iteration space at multiples of this do not
  // duplicate work.
  virtual int64_t grain() const = 0;
};

// A register program and the tensors that it reads and writes. `code` must have
// been checked. A result has exactly the elements of an operand or overlaps
// none.
struct Evaluation {
  program::RegisterCode code;
  std::vector<int64_t> shape;  // the iteration space
  std::vector<Operand> operands;
  std::vector<Operand> results;
};

// An error if a tensor's elements do not have the register type of its LOAD or
// output. The iteration space must not be empty.
StatusOr<std::unique_ptr<const Evaluator>> MakeEvaluator(Evaluation evaluation);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_EVALUATOR_H_
