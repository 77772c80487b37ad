// The kernel of Gather: one copy per window.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/row_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
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
                 windows_.batch[0].other == operand_.item_size) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const char* const operand = operand_.Data(memory);
    const char* const indices = indices_.Data(memory);
    char* const result = result_.Data(memory);
    // Threads share the bytes of each window only if windows are large.
    if (copy_.bytes() >= StridedCopy::kParallelBytes) {
      return windows_.ForEach(indices, 0, windows_.count, /*clamp=*/true,
                              [&](const Windows::Place* places, int64_t n) {
                                for (int64_t i = 0; i < n; ++i) {
                                  copy_.Run(operand + places[i].tensor,
                                            result + places[i].other, threads);
                                }
                              });
    }
    // However small a window is, it costs a cache line.
    const int64_t cost = std::max<int64_t>(copy_.bytes(), 32);
    const int64_t grain =
        std::max<int64_t>(1, StridedCopy::kParallelBytes / 2 / cost);
    threads.For(windows_.count, grain, [&](int64_t begin, int64_t end) {
      Gather(operand, indices, result, begin, end);
    });
  }

  // On one thread, as a part of a loop.
  bool Record(model::Tape& tape) const override {
    const int64_t cost = std::max<int64_t>(copy_.bytes(), 32);
    if (cost * windows_.count > kFewBytes) return false;
    static_cast<Tape&>(tape).Call(
        [](const Step& step, const Frame& frame) {
          const auto* self =
              static_cast<const GatherKernel*>(PayloadOf<const void*>(step));
          const Memory memory{frame.bases};
          self->Gather(self->operand_.Data(memory), self->indices_.Data(memory),
                       self->result_.Data(memory), 0, self->windows_.count);
        },
        this);
    return true;
  }

 private:
  // A guess: the time of a few other steps.
  static constexpr int64_t kFewBytes = 4096;

  // Windows [begin, end), on the calling thread.
  void Gather(const char* operand, const char* indices, char* result,
              int64_t begin, int64_t end) const {
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
