#include "jaxlib/ipu/runtime/model/kernels/evaluate/map_kernel.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

// Maps that take less time than kWorthThreads run on one thread; each chunk of
// a parallel map takes at least kGrain. Guesses, in nanoseconds by the
// estimates of step_cost.h: more threads have to save more than it takes to
// wake them.
constexpr double kWorthThreads = 12'000;
constexpr double kGrain = 4'000;

class MapKernel : public Kernel {
 public:
  explicit MapKernel(std::unique_ptr<const Evaluator> evaluator)
      : evaluator_(std::move(evaluator)), size_(evaluator_->size()) {
    const double nanoseconds = evaluator_->nanoseconds();
    const auto elements =
        static_cast<int64_t>(kGrain / std::max(nanoseconds, 0.01));
    const int64_t unit = evaluator_->grain();
    grain_ = std::max<int64_t>(1, elements / unit) * unit;
    one_thread_ = nanoseconds * static_cast<double>(size_) < kWorthThreads;
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    if (one_thread_) return evaluator_->Run(memory, 0, size_);
    threads.For(size_, grain_, [&](int64_t begin, int64_t end) {
      evaluator_->Run(memory, begin, end);
    });
  }

  bool Record(model::Tape& tape) const override {
    return one_thread_ && evaluator_->Record(static_cast<Tape&>(tape));
  }

 private:
  const std::unique_ptr<const Evaluator> evaluator_;
  const int64_t size_;
  int64_t grain_;
  bool one_thread_;
};

class EmptyKernel : public Kernel {
 public:
  void Run(const Memory&, ThreadPool&) const override {}
};

// The iteration dimensions sorted by the strides of the first result, so that
// elements that are dense there in another order become one run.
std::vector<size_t> MemoryOrder(const Evaluation& evaluation) {
  std::vector<size_t> order(evaluation.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const Operand& guide = evaluation.results[0];
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(guide.Stride(a)) > std::abs(guide.Stride(b));
  });
  return order;
}

template <typename T>
std::vector<T> Permuted(const std::vector<T>& values,
                        const std::vector<size_t>& order) {
  std::vector<T> result;
  for (size_t d : order) result.push_back(values[d]);
  return result;
}

std::vector<Operand> Permuted(std::vector<Operand> operands,
                              const std::vector<size_t>& order) {
  for (Operand& operand : operands) {
    operand.dims = Permuted(operand.dims, order);
  }
  return operands;
}

void PermuteIotas(program::RegisterCode& code,
                  const std::vector<size_t>& order) {
  for (program::Instruction& i : code.code) {
    if (i.op != program::Opcode::kIota) continue;
    i.imm = std::find(order.begin(), order.end(), i.imm) - order.begin();
  }
}

// Below so many bytes, maps that only move elements remain maps, which loops
// record with their other steps. A guess.
constexpr int64_t kWorthCopy = 64 << 10;

// The copy that a map is if it only moves elements, which has faster ways for
// repeated rows.
std::optional<CopyPlan> AsCopy(const Evaluation& evaluation) {
  const auto& code = evaluation.code.code;
  if (code.size() != 1 || code[0].op != program::Opcode::kLoad ||
      evaluation.results.size() != 1) {
    return std::nullopt;
  }
  const Operand& from = evaluation.operands[code[0].imm];
  const Operand& to = evaluation.results[0];
  int64_t bytes = to.view.item_size;
  for (const int64_t extent : evaluation.shape) bytes *= extent;
  if (from.view.dtype != to.view.dtype || to.streams || bytes < kWorthCopy ||
      program::RegisterTypeOf(from.view.dtype) != code[0].type) {
    return std::nullopt;
  }
  const auto along = [&](const Operand& operand) {
    View view = operand.view;
    view.shape = evaluation.shape;
    view.strides.resize(view.shape.size());
    for (size_t d = 0; d < view.shape.size(); ++d) {
      view.strides[d] = operand.Stride(d);
    }
    return view;
  };
  return CopyPlan{along(from), along(to)};
}

}  // namespace

KernelOr MakeMapKernel(Evaluation evaluation) {
  const std::vector<int64_t>& shape = evaluation.shape;
  if (std::count(shape.begin(), shape.end(), 0) > 0) {
    return {std::make_unique<EmptyKernel>()};
  }
  if (auto copy = AsCopy(evaluation)) return MakeCopy({std::move(*copy)});
  const std::vector<size_t> order = MemoryOrder(evaluation);
  PermuteIotas(evaluation.code, order);
  auto evaluator = MakeEvaluator(
      {std::move(evaluation.code), Permuted(evaluation.shape, order),
       Permuted(std::move(evaluation.operands), order),
       Permuted(std::move(evaluation.results), order)});
  if (!evaluator.ok()) return evaluator.status();
  return {std::make_unique<MapKernel>(std::move(*evaluator))};
}

}  // namespace ipu::model::IPU_SIMD_NS
