// Reductions; `Reduce` in jaxlib/ipu/program/schema.py.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/map_kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/general_reduce.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_worker.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/unrolled.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Reductions of no more than this run on one thread and are recorded; guesses.
constexpr int64_t kFewTotals = 64;
constexpr double kFewNanoseconds = 1000;

// Divides a reduction among threads: the totals if there are enough of them,
// otherwise also the elements of each total.
class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(ReducePlan plan)
      : plan_(std::move(plan)), is_one_part_(IsOnePart(plan_)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override;

  bool Record(model::Tape& tape) const override {
    if (!is_one_part_) return false;
    if (RecordSum(static_cast<Tape&>(tape))) return true;
    static_cast<Tape&>(tape).Call(
        [](const Step& step, const Frame& frame) {
          static_cast<const ReduceKernel*>(PayloadOf<const void*>(step))
              ->RunOnePart(Memory{frame.bases});
        },
        this);
    return true;
  }

 private:
  // Whether one call of the fold, on one thread, is all there is to do.
  static bool IsOnePart(const ReducePlan& plan) {
    const int64_t totals = plan.x.extent;
    const double elements = static_cast<double>(totals) * plan.reduced;
    return plan.places.empty() && totals > 0 && totals <= kFewTotals &&
           plan.outer.kept_size() == 1 &&
           plan.nanoseconds * elements < kFewNanoseconds;
  }
  // Records a sum of adjacent elements as one.
  bool RecordSum(Tape& tape) const {
    const View &from = plan_.source, &to = plan_.results[0];
    if (plan_.program || !plan_.by_rows || plan_.x.extent != 1 ||
        plan_.reduced != plan_.y.extent || from.dtype != to.dtype) {
      return false;
    }
    constexpr auto kSum = program::ReduceKind::kSum;
    const bool squares = plan_.fold == FoldOfSquares(from.dtype, kSum);
    const Fold* const plain = from.dtype == DType::kF32   ? FoldOf<float>(kSum)
                              : from.dtype == DType::kF64 ? FoldOf<double>(kSum)
                              : from.item_size == 4 ? FoldOf<uint32_t>(kSum)
                                                    : FoldOf<uint64_t>(kSum);
    if (!squares && plan_.fold != plain) return false;
    const int64_t bytes = plan_.reduced * from.item_size;
    return tape.Sum({from.base, from.offset, static_cast<uint32_t>(bytes)},
                    from.dtype, squares, {to.base, to.offset, to.item_size});
  }
  void RunOnePart(const Memory& memory) const {
    const ReducePart part = {.outer = 0,
                             .begin = 0,
                             .end = plan_.x.extent,
                             .first = 0,
                             .last = plan_.reduced};
    alignas(64) char totals[kFewTotals * kMostTotalSize];
    Start(part.end, totals);
    ReduceWorker(plan_, memory).Fold(part, totals);
    Finish(totals, part, memory);
  }
  void Start(int64_t n, char* totals) const;
  // Writes the results of a part, whose totals it changes.
  void Finish(char* totals, const ReducePart& part, const Memory& memory) const;
  void MergeColumns(char* totals, int64_t results) const;
  void RunWindows(const Memory& memory, ThreadPool& threads) const;

  const ReducePlan plan_;
  const bool is_one_part_;
};

void ReduceKernel::Start(int64_t n, char* totals) const {
  plan_.fold->start(n, totals);
  if (plan_.reduced != 0 || plan_.init.empty()) return;
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(totals + i * plan_.init.size(), plan_.init.data(),
                plan_.init.size());
  }
}

// Merges the totals of each result's columns, and moves them together.
void ReduceKernel::MergeColumns(char* totals, int64_t results) const {
  const int64_t size = plan_.fold->total_size;
  for (int64_t i = 0; i < results; ++i) {
    const char* const columns = totals + i * plan_.merged * size;
    char* const to = totals + i * size;
    std::memmove(to, columns, size);
    for (int64_t k = 1; k < plan_.merged; ++k) {
      plan_.fold->merge(columns + k * size, 1, to);
    }
  }
}

void ReduceKernel::Finish(char* totals, const ReducePart& part,
                          const Memory& memory) const {
  const int64_t results = (part.end - part.begin) / plan_.merged;
  if (plan_.merged > 1) MergeColumns(totals, results);
  FoldOutput outputs[2];
  for (size_t j = 0; j < plan_.results.size(); ++j) {
    const int64_t stride = plan_.x.results[j];
    const int64_t at = ResultOffset(plan_.outer.kept, j, part.outer) +
                       part.begin / plan_.merged * stride;
    outputs[j] = {
        .data = plan_.results[j].Data(memory) + at * plan_.results[j].item_size,
        .stride = stride,
        .dtype = plan_.results[j].dtype};
  }
  plan_.fold->finish(totals, results, outputs);
}

void ReduceKernel::RunWindows(const Memory& memory, ThreadPool& threads) const {
  const size_t i = plan_.direct;
  const ReduceAxis &x = plan_.x, &rows = plan_.rows;
  const char* from = plan_.source.Data(memory);
  char* to = plan_.results[0].Data(memory);
  // Long rows are divided among threads, too. A guess.
  constexpr int64_t kMostTogether = 8192;
  const int64_t pieces = (x.extent + kMostTogether - 1) / kMostTogether;
  const int64_t together = std::min(x.extent, kMostTogether);
  const int64_t each = rows.extent * pieces, n = plan_.outer.kept_size() * each;
  const double work = plan_.nanoseconds * static_cast<double>(together) *
                      static_cast<double>(plan_.places.size());
  const double grain = ThreadPool::kWorthNanoseconds / (work + 1) + 1;
  threads.For(n, static_cast<int64_t>(grain), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t outer = begin / each, first = begin % each;
      const int64_t last = std::min(each, first + end - begin);
      const int64_t source = OperandOffset(plan_.outer.kept, i, outer);
      const int64_t result = ResultOffset(plan_.outer.kept, 0, outer);
      for (int64_t k = first; k < last; ++k) {
        const int64_t r = k / pieces, c = k % pieces * together;
        const int64_t at = source + r * rows.operands[i] + c * x.operands[i];
        const int64_t made = result + r * rows.results[0] + c;
        plan_.fold->windows(
            {.values = from + at * plan_.item_size,
             .step = x.operands[i],
             .count = std::min(together, x.extent - c),
             .places = plan_.places.data(),
             .num_places = static_cast<int64_t>(plan_.places.size()),
             .to = to + made * plan_.item_size});
      }
      begin += last - first;
    }
  });
}

void ReduceKernel::Run(const Memory& memory, ThreadPool& threads) const {
  if (is_one_part_) return RunOnePart(memory);
  if (!plan_.places.empty()) return RunWindows(memory, threads);
  // Totals of at most 16 KiB, which is half of a first-level cache; a guess.
  constexpr int64_t kMostX = 1024, kUnit = 16;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Parts have all columns of each result.
  const int64_t unit = ceil_div(kUnit, plan_.merged) * plan_.merged;
  const int64_t outer = plan_.outer.kept_size(), kept = outer * plan_.x.extent;
  if (kept == 0) return;
  const double work = plan_.nanoseconds * kept * plan_.reduced;
  const int64_t wanted =
      threads.threads() == 1
          ? 1
          : std::min(4.0 * threads.threads(),
                     work / ThreadPool::kWorthNanoseconds + 1);

  // Blocks of x: few enough elements to stay in the cache, and small enough for
  // every thread to have some.
  int64_t block = std::min(plan_.x.extent, kMostX / unit * unit);
  if (plan_.by_rows) {
    block = std::clamp<int64_t>((1 << 16) / (plan_.reduced + 1), kUnit, kMostX);
  }
  const int64_t least =
      plan_.by_rows ? (plan_.reduced < 2048 ? kUnit : 1) : 16 * unit;
  const int64_t fair = ceil_div(kept, wanted);
  if (fair < block) {
    block = std::max(least, ceil_div(fair, unit) * unit);
    if (least == 1) block = std::max(fair, least);
  }
  const int64_t blocks = ceil_div(plan_.x.extent, block);
  const int64_t pieces = outer * blocks;
  const auto part_of = [&](int64_t piece) {
    const int64_t begin = piece % blocks * block;
    return ReducePart{.outer = piece / blocks,
                      .begin = begin,
                      .end = std::min(plan_.x.extent, begin + block),
                      .first = 0,
                      .last = plan_.reduced};
  };
  if (pieces * 2 > wanted || plan_.reduced < 2) {
    const double grain = ThreadPool::kWorthNanoseconds * pieces / (work + 1);
    threads.For(pieces, std::max<int64_t>(1, std::min<double>(grain, pieces)),
                [&](int64_t begin, int64_t end) {
                  ReduceWorker worker(plan_, memory);
                  alignas(64) char totals[kMostX * kMostTotalSize];
                  for (int64_t i = begin; i < end; ++i) {
                    const ReducePart part = part_of(i);
                    Start(part.end - part.begin, totals);
                    worker.Fold(part, totals);
                    Finish(totals, part, memory);
                  }
                });
    return;
  }
  // Few totals of many elements: divide the reduced elements as well.
  const int64_t parts = std::min(ceil_div(wanted, pieces), plan_.reduced);
  static thread_local Scratch partial;
  char* totals = partial.Get<char>(parts * kept * plan_.fold->total_size);
  const auto totals_of = [&](int64_t part, int64_t kept_point) {
    return totals + (part * kept + kept_point) * plan_.fold->total_size;
  };
  threads.For(pieces * parts, 1, [&](int64_t begin, int64_t end) {
    ReduceWorker worker(plan_, memory);
    for (int64_t i = begin; i < end; ++i) {
      ReducePart part = part_of(i / parts);
      const int64_t n = i % parts;
      part.first = plan_.reduced * n / parts;
      part.last = plan_.reduced * (n + 1) / parts;
      char* to = totals_of(n, part.outer * plan_.x.extent + part.begin);
      plan_.fold->start(part.end - part.begin, to);
      worker.Fold(part, to);
    }
  });
  for (int64_t n = 1; n < parts; ++n) {
    plan_.fold->merge(totals_of(n, 0), kept, totals_of(0, 0));
  }
  for (int64_t i = 0; i < pieces; ++i) {
    const ReducePart part = part_of(i);
    Finish(totals_of(0, part.outer * plan_.x.extent + part.begin), part,
           memory);
  }
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Reduce& fields) {
  if (fields.num_reduced > set.shape.size()) {
    return InvalidArgument("Reduce reduces " +
                           std::to_string(fields.num_reduced) + " of " +
                           std::to_string(set.shape.size()) + " dimensions.");
  }
  const auto kind = static_cast<program::ReduceKind>(fields.kind);
  if (kind == program::ReduceKind::kGeneral) {
    return MakeGeneralReduce(set, fields);
  }
  StatusOr<ReducePlan> plan = MakeReducePlan(set, fields);
  if (!plan.ok()) return plan.status();
  if (auto evaluation = Unrolled(set, fields, *plan)) {
    return MakeMapKernel(std::move(*evaluation));
  }
  return KernelOr(std::make_unique<ReduceKernel>(std::move(*plan)));
}

}  // namespace ipu::model::IPU_SIMD_NS
