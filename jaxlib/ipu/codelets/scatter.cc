// The kernel of Scatter.
//
// The result does not depend on the number of threads: every element is updated
// by one thread only, in the order of the updates. Threads divide the windows
// if no two of them overlap; otherwise the columns of all windows, if every
// element is in the same column of all windows that contain it; otherwise (for
// windows of one element) the elements of the result.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "jaxlib/ipu/codelets/recorded_windows.h"
#include "jaxlib/ipu/codelets/window_update.h"
#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/combiner.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The combiner of elements that are as in registers. Nothing if it does not
// give the same bits, as a maximum of zeros with both signs.
std::optional<program::Instruction> SameCombiner(program::ReduceKind kind,
                                                 const View& result) {
  using program::ReduceKind;
  const program::RegisterType type = program::RegisterTypeOf(result.dtype);
  const bool extreme = kind == ReduceKind::kMax || kind == ReduceKind::kMin;
  if (program::RegisterBytes(type) != result.item_size ||
      (program::IsFloat(type) && extreme)) {
    return std::nullopt;
  }
  return CombinerOf(kind, type);
}

class ScatterKernel : public Kernel {
 public:
  ScatterKernel(Windows windows, const ComputeSet& set,
                program::ReduceKind kind, bool unique,
                std::unique_ptr<WindowUpdate> update)
      : windows_(std::move(windows)),
        updates_(set.operands.back().view),
        result_(set.results[0].view),
        update_(std::move(update)),
        singles_(windows_.AreSingles()),
        overwrites_(kind == program::ReduceKind::kSet),
        combiner_(SameCombiner(kind, result_)),
        recorded_(RecordedWindows::Make(windows_, /*drops=*/true, result_,
                                        updates_)) {
    int64_t window_bytes = result_.item_size;
    for (int64_t n : windows_.extents) window_bytes *= n;
    // However small a window is, it costs a cache line.
    const int64_t cost = std::max<int64_t>(window_bytes, 32);
    if (cost * windows_.count < 2 * kGrainBytes) return;
    const int64_t column_bytes = update_->columns() * result_.item_size;
    if (unique && windows_.count >= kEnoughWindows) {
      share_ = Share::kWindows;
      grain_ = std::max<int64_t>(1, kGrainBytes / cost);
    } else if (update_->columns_apart() && column_bytes >= 2 * kColumnBytes) {
      share_ = Share::kColumns;
      grain_ = kColumnBytes / result_.item_size;
    } else if (window_bytes == result_.item_size) {
      result_bytes_ = result_.item_size;
      for (int64_t n : result_.shape) result_bytes_ *= n;
      // In the cache, an update takes less time than deciding which thread does
      // it.
      if (!singles_ || result_bytes_ > kCacheBytes) share_ = Share::kElements;
    }
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const int64_t count = windows_.count;
    const int64_t columns = update_->columns();
    switch (share_) {
      case Share::kNothing:
        return Update(memory, 0, count, 0, columns);
      case Share::kWindows:
        return threads.For(count, grain_, [&](int64_t begin, int64_t end) {
          Update(memory, begin, end, 0, columns);
        });
      case Share::kColumns:
        // Each part visits all windows, so there is one part per thread.
        return threads.For(columns,
                           std::max(grain_, columns / threads.threads()),
                           [&](int64_t begin, int64_t end) {
                             Update(memory, 0, count, begin, end);
                           });
      case Share::kElements:
        return threads.For(threads.threads(), 1,
                           [&](int64_t begin, int64_t end) {
                             UpdateOwn(memory, begin, end, threads.threads());
                           });
    }
  }

  bool Record(model::Tape& of) const override {
    Tape& tape = static_cast<Tape&>(of);
    if (recorded_ && overwrites_ && recorded_->Update(tape)) return true;
    if (recorded_ && combiner_ && recorded_->Combine(tape, *combiner_)) {
      return true;
    }
    if (share_ != Share::kNothing) return false;
    tape.Call(
        [](const Step& step, const Frame& frame) {
          const auto* self =
              static_cast<const ScatterKernel*>(PayloadOf<const void*>(step));
          self->Update(Memory{frame.bases}, 0, self->windows_.count, 0,
                       self->update_->columns());
        },
        this);
    return true;
  }

 private:
  static constexpr int64_t kGrainBytes = 64 << 10;
  // So that every thread gets some of them; a guess.
  static constexpr int64_t kEnoughWindows = 64;
  static constexpr int64_t kColumnBytes = 128;  // two cache lines
  static constexpr int64_t kCacheBytes = 16 << 20;

  enum class Share : uint8_t { kNothing, kWindows, kColumns, kElements };

  void Update(const Memory& memory, int64_t begin, int64_t end,
              int64_t first_column, int64_t last_column) const {
    if (singles_) {
      return update_->ApplySingles(windows_, memory, updates_.Data(memory),
                                   result_.Data(memory), begin, end);
    }
    if (windows_.even) {
      return update_->ApplyEven(windows_, memory, begin, end,
                                updates_.Data(memory), result_.Data(memory),
                                first_column, last_column);
    }
    windows_.ForEach(
        memory, begin, end, [&](const Windows::Place* places, int64_t n) {
          update_->Apply(places, n, updates_.Data(memory), result_.Data(memory),
                         first_column, last_column);
        });
  }

  // Visits all windows and updates those in parts [begin, end) of `parts` of
  // the result.
  void UpdateOwn(const Memory& memory, int64_t begin, int64_t end,
                 int64_t parts) const {
    using Limits = std::numeric_limits<int64_t>;
    const int64_t part = result_bytes_ / parts + 1;
    const int64_t first = begin == 0 ? Limits::min() : begin * part;
    const int64_t last = end == parts ? Limits::max() : end * part;
    windows_.ForEach(memory, 0, windows_.count,
                     [&](Windows::Place* places, int64_t n) {
                       // Branch-free, since the branch would be unpredictable.
                       int64_t own = 0;
                       for (int64_t i = 0; i < n; ++i) {
                         const Windows::Place place = places[i];
                         places[own] = place;
                         own += (place.tensor >= first) & (place.tensor < last);
                       }
                       update_->Apply(places, own, updates_.Data(memory),
                                      result_.Data(memory), 0, 1);
                     });
  }

  const Windows windows_;
  const View updates_;
  const View result_;
  const std::unique_ptr<const WindowUpdate> update_;
  const bool singles_;
  const bool overwrites_;
  const std::optional<program::Instruction> combiner_;
  const std::optional<RecordedWindows> recorded_;
  Share share_ = Share::kNothing;
  int64_t grain_ = 1;
  int64_t result_bytes_ = 0;
};

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Scatter& fields) {
  if (set.operands.size() < 2 || set.results.size() != 1) {
    return InvalidArgument("scatter: takes indices and updates");
  }
  const View& result = set.results[0].view;
  if (set.operands.back().view.dtype != result.dtype) {
    return InvalidArgument("scatter: updates and result differ in type");
  }
  StatusOr<Windows> windows = Windows::Make(
      "scatter", set,
      {fields.num_batch_dims, fields.start_index_map, fields.window_sizes,
       fields.batch_dims, fields.window_dims, /*clamp=*/false},
      result, std::span(set.operands).first(set.operands.size() - 1),
      set.operands.back());
  if (!windows.ok()) return windows.status();
  StatusOr<std::unique_ptr<WindowUpdate>> update =
      WindowUpdate::Make(*windows, result.dtype, fields);
  if (!update.ok()) return update.status();
  if (windows->count == 0 || windows->none_fits) return KernelOr(nullptr);
  return std::unique_ptr<Kernel>(new ScatterKernel(
      std::move(*windows), set, static_cast<program::ReduceKind>(fields.kind),
      fields.unique_indices != 0, std::move(*update)));
}

}  // namespace ipu::model::IPU_SIMD_NS
