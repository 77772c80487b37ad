// Reductions; `Reduce` in jaxlib/ipu/program/schema.py.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/combiner.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/general_reduce.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_worker.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Reductions of no more than this run on one thread and are recorded; guesses.
constexpr int64_t kFewTotals = 64;
constexpr double kFewNanoseconds = 1000;
// As many elements are recorded one by one; a guess: more of them take longer
// than a call.
constexpr int64_t kFewElements = 8;

// The fold of elements that are as in registers.
const Fold* PlainFold(DType dtype, program::ReduceKind kind) {
  switch (dtype) {
    case DType::kF32:
      return FoldOf<float>(kind);
    case DType::kF64:
      return FoldOf<double>(kind);
    case DType::kI32:
      return FoldOf<int32_t>(kind);
    case DType::kU32:
      return FoldOf<uint32_t>(kind);
    case DType::kI64:
      return FoldOf<int64_t>(kind);
    case DType::kU64:
      return FoldOf<uint64_t>(kind);
    default:
      return nullptr;
  }
}

// Divides a reduction among threads: the totals if there are enough of them,
// otherwise also the elements of each total.
class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(ReducePlan plan, program::ReduceKind kind)
      : plan_(std::move(plan)), kind_(kind), is_one_part_(IsOnePart(plan_)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override;

  bool Record(model::Tape& tape) const override {
    if (!is_one_part_) return false;
    if (RecordAdjacent(static_cast<Tape&>(tape))) return true;
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
  // Records one total of few adjacent elements.
  bool RecordAdjacent(Tape& tape) const {
    const View &from = plan_.source, &to = plan_.results[0];
    if (plan_.program || !plan_.by_rows || plan_.x.extent != 1 ||
        plan_.reduced != plan_.y.extent || from.dtype != to.dtype) {
      return false;
    }
    using program::ReduceKind;
    const bool sums = kind_ == ReduceKind::kSum;
    const bool squares = sums && plan_.fold == FoldOfSquares(from.dtype, kind_);
    if (!squares &&
        (plan_.fold == nullptr || plan_.fold != PlainFold(from.dtype, kind_))) {
      return false;
    }
    const int64_t bytes = plan_.reduced * from.item_size;
    const Item all{from.base, from.offset, static_cast<uint32_t>(bytes)};
    const Item total{to.base, to.offset, to.item_size};
    if (sums && tape.Sum(all, from.dtype, squares, total)) return true;
    // Other sums and products of floats depend on their order.
    const program::RegisterType type = program::RegisterTypeOf(from.dtype);
    const auto combiner = CombinerOf(kind_, type);
    const bool any_order = !program::IsFloat(type) ||
                           kind_ == ReduceKind::kMax ||
                           kind_ == ReduceKind::kMin;
    return combiner && !squares && any_order && plan_.reduced > 1 &&
           plan_.reduced <= kFewElements && tape.Combine(all, *combiner, total);
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
  void Finish(const char* totals, const ReducePart& part,
              const Memory& memory) const;
  void RunWindows(const Memory& memory, ThreadPool& threads) const;

  const ReducePlan plan_;
  const program::ReduceKind kind_;
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

void ReduceKernel::Finish(const char* totals, const ReducePart& part,
                          const Memory& memory) const {
  FoldOutput outputs[2];
  for (size_t j = 0; j < plan_.results.size(); ++j) {
    const int64_t stride = plan_.x.results[j];
    const int64_t at =
        ResultOffset(plan_.outer.kept, j, part.outer) + part.begin * stride;
    outputs[j] = {
        .data = plan_.results[j].Data(memory) + at * plan_.results[j].item_size,
        .stride = stride,
        .dtype = plan_.results[j].dtype};
  }
  plan_.fold->finish(totals, part.end - part.begin, outputs);
}

void ReduceKernel::RunWindows(const Memory& memory, ThreadPool& threads) const {
  const size_t i = plan_.direct;
  const ReduceAxis &x = plan_.x, &rows = plan_.rows;
  const char* from = plan_.source.Data(memory);
  char* to = plan_.results[0].Data(memory);
  const double row = plan_.nanoseconds * static_cast<double>(x.extent) *
                     static_cast<double>(plan_.places.size());
  const int64_t n = plan_.outer.kept_size() * rows.extent;
  const double grain = ThreadPool::kWorthNanoseconds / (row + 1) + 1;
  threads.For(n, static_cast<int64_t>(grain), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t outer = begin / rows.extent, first = begin % rows.extent;
      const int64_t last = std::min(rows.extent, first + end - begin);
      const int64_t source = OperandOffset(plan_.outer.kept, i, outer);
      const int64_t result = ResultOffset(plan_.outer.kept, 0, outer);
      for (int64_t r = first; r < last; ++r) {
        const int64_t at = source + r * rows.operands[i];
        const int64_t made = result + r * rows.results[0];
        plan_.fold->windows(
            {.values = from + at * plan_.item_size,
             .step = x.operands[i],
             .count = x.extent,
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
  int64_t block = std::min(plan_.x.extent, kMostX);
  if (plan_.by_rows) {
    block = std::clamp<int64_t>((1 << 16) / (plan_.reduced + 1), kUnit, kMostX);
  }
  const int64_t least =
      plan_.by_rows ? (plan_.reduced < 2048 ? kUnit : 1) : 16 * kUnit;
  const int64_t fair = ceil_div(kept, wanted);
  if (fair < block) {
    block = std::max(least, ceil_div(fair, kUnit) * kUnit);
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
  return KernelOr(std::make_unique<ReduceKernel>(std::move(*plan), kind));
}

}  // namespace ipu::model::IPU_SIMD_NS
