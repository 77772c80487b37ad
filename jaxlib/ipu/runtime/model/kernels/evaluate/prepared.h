// What all evaluators hold: a prepared register program and the destinations of
// its outputs.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_PREPARED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_PREPARED_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/evaluator.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// The destination of an output.
struct Destination {
  StridedIterator iterator;
  DType dtype;
  ConvertFn convert;  // null if the program's values are stored unchanged
  uint32_t item_size;
  bool dense;  // or stored by machine code in pairs
  bool direct() const { return dense && convert == nullptr; }
};

struct Prepared {
  RegisterProgram program;
  std::vector<Destination> destinations;
  int64_t size;

  const Plan& plan() const { return program.plan(); }
};

// An array on the stack, or on the heap if it has more than kFew elements. They
// are not initialised.
template <typename T, size_t kFew>
class StackArray {
 public:
  explicit StackArray(size_t size) {
    if (size > kFew) [[unlikely]]
      many_.reset(new T[size]);
  }
  T* get() { return many_ == nullptr ? few_ : many_.get(); }

 private:
  T few_[kFew];
  std::unique_ptr<T[]> many_;
};

// The parts of an evaluator that do not depend on how it runs.
class PreparedEvaluator : public Evaluator {
 public:
  explicit PreparedEvaluator(Prepared prepared);
  int64_t size() const final { return prepared_.size; }
  double nanoseconds() const final { return nanoseconds_; }
  int64_t grain() const final;
  bool Record(Tape& tape) const override;

 protected:
  const Plan& plan() const { return plan_; }
  const std::vector<Destination>& destinations() const {
    return prepared_.destinations;
  }
  const RegisterProgram& program() const { return prepared_.program; }
  // Orders stores that bypass the caches before what other threads do next.
  void EndStreams() const {
    if (plan_.streams) _mm_sfence();
  }
  // All elements of an output's destination.
  Item ItemOf(const Destination& d) const;

 private:
  Prepared prepared_;
  const Plan& plan_;  // of its program
  double nanoseconds_;
};

// Prepares a program whose rounding is left to its stores.
StatusOr<Prepared> Prepare(const Evaluation& evaluation);

// One element; its steps need no state. Also recorded step by step.
std::unique_ptr<const Evaluator> MakeOneElement(Prepared prepared);

// Whether a run is a single call of machine code that reads operands and writes
// results in place, and so needs no state; and the evaluator that does so.
bool IsOneCall(const Prepared& prepared);
std::unique_ptr<const Evaluator> MakeOneCall(Prepared prepared);

// The slots of a program that is one call. Those of its outputs are not set.
class OneCallSlots {
 public:
  // The most slots, and the most uniform values among them, of such a program;
  // a guess: what fits easily on the stack.
  static constexpr size_t kFewSlots = 64;
  static constexpr size_t kFewCells = 16;

  explicit OneCallSlots(const Plan& plan) {
    size_t k = 0;
    for (; k < plan.offsets.size(); ++k) {
      slots_[k] = cells_ + k * kUniformBytes;
    }
    for (const Cell& cell : plan.constants) {
      slots_[k++] = const_cast<char*>(cell.bytes);
    }
  }
  char** get() { return slots_; }

 private:
  char* slots_[kFewSlots];
  alignas(64) char cells_[kFewCells * kUniformBytes];
};

// Blocks of elements, whose steps are functions or machine code.
std::unique_ptr<const Evaluator> MakeBlocks(Prepared prepared);

// Whether blocks end at rows or copy elements that are not in one piece, and
// the evaluator that calls machine code for each row instead; null if that is
// not possible or rows are short.
bool IsInRows(const Prepared& prepared);
std::unique_ptr<const Evaluator> MakeRows(Evaluation evaluation);

// A few elements, which are recorded on a tape as vectors or, if they are fewer
// than a vector has, as several programs of one element. Values then stay in
// registers between this program and those that slice and stack them, whereas a
// vector load would wait for the stores of its elements. Runs as `whole` does.
bool AreFewElements(const Evaluation& evaluation);
std::unique_ptr<const Evaluator> MakeFewElements(
    Evaluation evaluation, std::unique_ptr<const Evaluator> whole);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_PREPARED_H_
