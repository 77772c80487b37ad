// Evaluates elementwise register programs (jaxlib/ipu/kernel/opcode.py).
//
// A program is prepared once, when it is loaded: it is checked and simplified,
// its values are assigned to a few cache-sized block buffers, and its
// instructions become a list of calls. Evaluation needs only a `State` on the
// thread's stack; programs that need more (very many live values, transposed
// operands) use memory that is cached per thread.
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

// The maximum length of a block; a guess: the overhead of a block's steps is
// small by then, and the cache is full.
inline constexpr int64_t kLongestBlock = 2048;

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

class RegisterProgram {
 public:
  class State;

  // A program over the iteration space `shape`, in row-major order. LOAD k
  // reads operands[k] and converts it to its register type; an error if the
  // operand's elements do not have that register type. `code` must have been
  // checked; it may have been transformed since. `results` are the outputs'
  // destinations: each has exactly the elements of an operand or overlaps none.
  // Without `results`, outputs overlap no operand.
  static StatusOr<RegisterProgram> Make(
      program::RegisterCode code, const std::vector<int64_t>& shape,
      const std::vector<Operand>& operands,
      const std::vector<Operand>* results = nullptr);

  // A function of dense blocks, for `Call`: LOAD k reads block k, whose
  // elements already have the LOAD's register type. IOTA is an error.
  static StatusOr<RegisterProgram> MakeFunction(
      const std::string& code, const std::vector<uint16_t>& outputs,
      size_t num_operands);

  RegisterProgram(RegisterProgram&&) noexcept;
  RegisterProgram& operator=(RegisterProgram&&) noexcept;
  ~RegisterProgram();

  // The prepared program, for other ways of executing it.
  const Plan& plan() const;

  size_t num_outputs() const;
  program::RegisterType output_type(size_t j) const;

  // Whether `Eval` stores output j as elements of its dense result instead of
  // as register values; then outs[j] must not be null.
  bool stores_elements(size_t j) const;

  // The most elements that `Eval` accepts if it chooses where values are
  // stored.
  int64_t block() const;

  // Threads that divide the iteration space at multiples of this do not
  // duplicate work.
  int64_t grain() const;

  // Estimated time per element on one thread, to decide on the use of threads.
  double nanoseconds() const;

  // Computes the outputs for `count` elements starting at flat index `begin` of
  // the iteration space. outs[j] is where the values of output j are stored:
  // dense, in its register type. If it is null, Eval sets it to an address that
  // holds the values until the next Eval (a buffer of the state or the operand
  // itself), and count must not exceed block(). Where an output is stored over
  // an operand according to `results`, an element is read by all outputs before
  // any output of it is written.
  void Eval(State& state, int64_t begin, int64_t count, void** outs) const;

  // Eval for a program made by MakeFunction, with any count. outs[j] must
  // not be null and may equal an operand.
  void Call(State& state, const void* const* operands, void* const* outs,
            int64_t count) const;

 private:
  struct Impl;
  void Run(State& state, const void* const* operands, int64_t begin,
           int64_t count, void** outs) const;
  explicit RegisterProgram(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// One thread's working memory for one run of a program. It is large: keep it on
// the stack, and create it once per thread (or per chunk of a parallel loop).
class RegisterProgram::State {
 public:
  // Binds the operands and computes the uniform values.
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
  std::unique_ptr<char[], Free> large_;  // used if bytes_ does not suffice
  size_t large_bytes_ = 0;
  alignas(64) char bytes_[kBytes];
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_REGISTER_PROGRAM_H_
