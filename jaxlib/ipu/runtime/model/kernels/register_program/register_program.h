// Evaluates element-wise register programs (jaxlib/ipu/program/isa.py).
//
// A program is prepared once, when it is loaded: checked, simplified, its
// values put in a few cache-sized block buffers, its instructions turned into
// a list of calls. What a thread needs while it runs is a `State` on its
// stack; programs that need more than that (very many live values, operands
// that lie transposed) use memory that the thread keeps.
//
//   ASSIGN(program, RegisterProgram::Make(code, shape, operands));
//   ...
//   RegisterProgram::State state(program, memory);      // once per thread
//   void* values[] = {nullptr};
//   for (int64_t i = begin; i < end; i += program.block()) {
//     program.Eval(state, i, std::min(program.block(), end - i), values);
//     Use(static_cast<const float*>(values[0]));
//   }

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PROGRAM_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model::IPU_SIMD_NS {

struct Plan;  // register_plan.h

// No program's block is longer.
inline constexpr int64_t kLongestBlock = 2048;

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

class RegisterProgram {
 public:
  class State;

  // A program over the iteration space `shape`, walked in row-major order.
  // LOAD k reads operands[k] and converts it to its register type; refused if
  // that is not the type of the operand's elements. `code` has been checked and
  // may have been changed since. With `results`, where the outputs will be
  // stored: each is the very same elements as an operand, or shares nothing
  // with it. Without, outputs go to memory that no operand is in.
  static StatusOr<RegisterProgram> Make(
      program::RegisterCode code, const std::vector<int64_t>& shape,
      const std::vector<Operand>& operands,
      const std::vector<Operand>* results = nullptr);

  // A function of dense blocks, for `Call`: LOAD k reads block k, whose
  // elements are of the LOAD's register type already. IOTA is refused.
  static StatusOr<RegisterProgram> MakeFunction(
      const std::string& code, const std::vector<uint16_t>& outputs,
      size_t num_operands);

  RegisterProgram(RegisterProgram&&) noexcept;
  RegisterProgram& operator=(RegisterProgram&&) noexcept;
  ~RegisterProgram();

  // What is prepared, for whoever runs it in another way.
  const Plan& plan() const;

  size_t num_outputs() const;
  program::RegisterType output_type(size_t j) const;

  // Whether `Eval` stores output j as elements of its result, which is dense:
  // then outs[j] must not be null.
  bool stores_elements(size_t j) const;

  // The most elements `Eval` takes at once when it chooses where values go.
  int64_t block() const;

  // Threads that share the iteration space do no work twice if they begin at
  // multiples of this.
  int64_t grain() const;

  // A guess at what one element costs one thread, to decide about threads.
  double nanoseconds() const;

  // Computes the outputs for the `count` elements from flat index `begin` of
  // the iteration space on. outs[j] says where output j's values go, dense,
  // in its register type. If it is null, Eval sets it to where the values are
  // until the next Eval (in a buffer of the state's, or in the operand
  // itself), and count must not exceed block(). Where `results` say that an
  // output is stored in an operand, an element is read by all before any output
  // of it is written.
  void Eval(State& state, int64_t begin, int64_t count, void** outs) const;

  // For an iteration space of one element: the same without a state, quickly.
  // Output j goes into values[j].
  void EvalOne(const Memory& memory, uint64_t* values) const;

  // The same for a program made by MakeFunction; any count. outs[j] must not
  // be null and may be one of the operands.
  void Call(State& state, const void* const* operands, void* const* outs,
            int64_t count) const;

 private:
  struct Impl;
  void Run(State& state, const void* const* operands, int64_t begin,
           int64_t count, void** outs) const;
  explicit RegisterProgram(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// One thread's working memory for one run of a program. It is large: keep it
// on the stack, make it once per thread (or per chunk of a parallel loop).
class RegisterProgram::State {
 public:
  // Binds the operands; values that are the same everywhere are computed now.
  State(const RegisterProgram& program, const Memory& memory);
  // For a program made by MakeFunction.
  explicit State(const RegisterProgram& program);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

 private:
  friend class RegisterProgram;
  static constexpr size_t kBytes = 48 << 10;

  void Bind(const Impl& impl);

  char* const* bases_;
  char** slots_;
  char* staging_;
  std::unique_ptr<char[], Free> large_;  // only if the program needs more
  size_t large_bytes_ = 0;
  alignas(64) char bytes_[kBytes];
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PROGRAM_H_
