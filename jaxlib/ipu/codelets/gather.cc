// The kernel of Gather: one copy per window.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "jaxlib/ipu/codelets/recorded_windows.h"
#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/row_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int64_t kAhead = 8;

class GatherKernel : public Kernel {
 public:
  GatherKernel(Windows windows, const ComputeSet& set)
      : windows_(std::move(windows)),
        operand_(set.operands[0].view),
        indices_(set.operands[1].view),
        result_(set.results[0].view),
        copy_(operand_.item_size, windows_.extents, windows_.tensor_strides,
              windows_.other_strides),
        singles_(windows_.AreSingles() &&
                 windows_.batch[0].other == operand_.item_size),
        recorded_(RecordedWindows::Make(windows_, /*drops=*/false, operand_,
                                        indices_, result_)) {
    // However small a window is, it costs a cache line.
    const int64_t cost = std::max<int64_t>(copy_.bytes(), 32);
    grain_ = std::max<int64_t>(1, StridedCopy::kParallelBytes / 2 / cost);
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    // Threads share the bytes of each window only if windows are large.
    if (copy_.bytes() >= StridedCopy::kParallelBytes) {
      const char* const operand = operand_.Data(memory);
      char* const result = result_.Data(memory);
      return windows_.ForEach(indices_.Data(memory), 0, windows_.count,
                              /*clamp=*/true,
                              [&](const Windows::Place* places, int64_t n) {
                                for (int64_t i = 0; i < n; ++i) {
                                  copy_.Run(operand + places[i].tensor,
                                            result + places[i].other, threads);
                                }
                              });
    }
    threads.For(windows_.count, grain_, [&](int64_t begin, int64_t end) {
      GatherWindows(memory, begin, end);
    });
  }

  bool Record(model::Tape& tape) const override {
    if (recorded_ && recorded_->Slice(static_cast<Tape&>(tape))) return true;
    // What several threads would share is not recorded.
    if (copy_.bytes() >= StridedCopy::kParallelBytes ||
        windows_.count > grain_) {
      return false;
    }
    static_cast<Tape&>(tape).Call(
        [](const Step& step, const Frame& frame) {
          const auto* self =
              static_cast<const GatherKernel*>(PayloadOf<const void*>(step));
          self->GatherWindows(Memory{frame.bases}, 0, self->windows_.count);
        },
        this);
    return true;
  }

 private:
  void GatherWindows(const Memory& memory, int64_t begin, int64_t end) const {
    const char* const operand = operand_.Data(memory);
    const char* const indices = indices_.Data(memory);
    char* const result = result_.Data(memory);
    if (singles_) return GatherSingles(operand, indices, result, begin, end);
    const auto gather = [&](const auto& copy) {
      windows_.ForEach(indices, begin, end, /*clamp=*/true,
                       [&](const Windows::Place* places, int64_t n) {
                         for (int64_t i = 0; i < n; ++i) {
                           // Prefetch a later window.
                           const int64_t soon = std::min(i + kAhead, n - 1);
                           __builtin_prefetch(operand + places[soon].tensor);
                           copy(operand + places[i].tensor,
                                result + places[i].other);
                         }
                       });
    };
    if (copy_.dense()) {
      WithRowCopy(copy_.bytes(), gather);
    } else {
      gather([&](const char* from, char* to) { copy_.Run(from, to); });
    }
  }

  void GatherSingles(const char* operand, const char* indices, char* result,
                     int64_t begin, int64_t end) const {
    int32_t offsets[Windows::kBlock];
    WithItem(operand_.item_size, [&]<typename Item>(Item item) {
      for (; begin < end; begin += Windows::kBlock) {
        const int64_t n = std::min(Windows::kBlock, end - begin);
        windows_.LocateEven(indices, begin, begin + n, /*clamp=*/true, offsets);
        char* const to = result + begin * sizeof(Item);
        int64_t i = 0;
        if constexpr (sizeof(Item) >= 4) {
          constexpr int kN = kLanes<Item>;
          for (; i + kN <= n; i += kN) {
            Store(
                to + i * sizeof item,
                LoadAt<Item>(operand, Load<Vector<int32_t, kN>>(offsets + i)));
          }
        }
        for (; i < n; ++i) {
          std::memcpy(&item, operand + offsets[i], sizeof item);
          std::memcpy(to + i * sizeof item, &item, sizeof item);
        }
      }
    });
  }

  const Windows windows_;
  const View operand_;
  const View indices_;
  const View result_;
  const StridedCopy copy_;
  const bool singles_;
  const std::optional<RecordedWindows> recorded_;
  int64_t grain_ = 1;
};

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Gather& fields) {
  if (set.operands.size() != 2 || set.results.size() != 1) {
    return InvalidArgument("gather: takes an operand and indices");
  }
  const View& operand = set.operands[0].view;
  if (operand.dtype != set.results[0].view.dtype) {
    return InvalidArgument("gather: operand and result differ in type");
  }
  StatusOr<Windows> windows =
      Windows::Make("gather", set,
                    {fields.num_batch_dims, fields.start_index_map,
                     fields.slice_sizes, fields.batch_dims, fields.window_dims},
                    operand, set.operands[1], set.results[0]);
  if (!windows.ok()) return windows.status();
  if (windows->count == 0) return KernelOr(nullptr);
  if (windows->none_fits) {
    return InvalidArgument("gather: its slices are larger than its operand");
  }
  return std::unique_ptr<Kernel>(new GatherKernel(std::move(*windows), set));
}

}  // namespace ipu::model::IPU_SIMD_NS
