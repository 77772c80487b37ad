// Kernels for exchanges: what the machine moves between tiles, the model copies
// between tensors.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/copy/interleave.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

struct Place {
  uint32_t base;
  int64_t offset;

  explicit Place(const View& view) : base(view.base), offset(view.offset) {}
  char* In(const Memory& memory) const { return memory.bases[base] + offset; }
  Item First(int64_t bytes) const {
    return {base, offset, static_cast<uint32_t>(bytes)};
  }
};

bool SameStrides(const CopyPlan& plan) {
  for (size_t d = 0; d < plan.source.shape.size(); ++d) {
    if (plan.source.shape[d] > 1 &&
        plan.source.strides[d] != plan.destination.strides[d]) {
      return false;
    }
  }
  return true;
}

class CopyKernel : public Kernel {
 public:
  explicit CopyKernel(const std::vector<CopyPlan>& plans)
      : interleave_(Interleave::Make(plans)) {
    int64_t largest = 0;
    for (const CopyPlan& plan : plans) {
      const StridedCopy copy(plan.source.item_size, plan.source.shape,
                             plan.source.strides, plan.destination.strides);
      if (copy.bytes() == 0) continue;
      bytes_ += copy.bytes();
      largest = std::max(largest, copy.bytes());
      moves_.push_back({Place(plan.source), Place(plan.destination),
                        SameStrides(plan), copy});
    }
    share_moves_ = largest < StridedCopy::kParallelBytes &&
                   bytes_ >= 2 * StridedCopy::kParallelBytes;
    if (share_moves_) {
      const auto count = static_cast<int64_t>(moves_.size());
      grain_ = std::max<int64_t>(
          1, count * StridedCopy::kParallelBytes / 2 / bytes_);
    }
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    if (interleave_) return interleave_->Run(memory, threads);
    if (!share_moves_) {
      for (const Move& move : moves_) move.Run(memory, threads);
      return;
    }
    threads.For(static_cast<int64_t>(moves_.size()), grain_,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) moves_[i].Run(memory);
                });
  }

  bool Record(model::Tape& of) const override {
    Tape& tape = static_cast<Tape&>(of);
    const auto is_few = [](const Move& move) {
      return move.copy.dense() && Tape::IsFew(move.copy.bytes());
    };
    if (std::all_of(moves_.begin(), moves_.end(), is_few)) {
      return std::all_of(moves_.begin(), moves_.end(), [&](const Move& move) {
        const int64_t bytes = move.copy.bytes();
        return tape.Copy(move.source.First(bytes),
                         move.destination.First(bytes));
      });
    }
    if (bytes_ > kMostBytes) return false;
    tape.Call(
        [](const Step& step, const Frame& frame) {
          const void* self = PayloadOf<const void*>(step);
          static_cast<const CopyKernel*>(self)->RunAll({frame.bases});
        },
        this);
    return true;
  }

 private:
  // On one thread, as a part of a loop. A guess: the time of a few other steps.
  static constexpr int64_t kMostBytes = 4096;

  struct Move {
    Place source;
    Place destination;
    bool same_strides;
    StridedCopy copy;

    // On the threads given, or else on the calling one.
    template <typename... Threads>
    void Run(const Memory& memory, Threads&... threads) const {
      char* const from = source.In(memory);
      char* const to = destination.In(memory);
      // A donated argument that is returned unchanged.
      if (from == to && same_strides) return;
      copy.Run(from, to, threads...);
    }
  };

  void RunAll(const Memory& memory) const {
    for (const Move& move : moves_) move.Run(memory);
  }

  const std::optional<Interleave> interleave_;  // all moves as one
  std::vector<Move> moves_;
  int64_t bytes_ = 0;
  bool share_moves_ = false;  // threads share the moves, not each move's bytes
  int64_t grain_ = 1;
};

// Copies 1, 2, 4 or 8 contiguous bytes, such as a loop's counter.
template <typename T>
class CopyOne : public Kernel {
 public:
  explicit CopyOne(const CopyPlan& plan)
      : source_(plan.source), destination_(plan.destination) {}

  void Run(const Memory& memory, ThreadPool&) const override {
    T item;
    std::memcpy(&item, source_.In(memory), sizeof item);
    std::memcpy(destination_.In(memory), &item, sizeof item);
  }

  bool Record(model::Tape& tape) const override {
    return static_cast<Tape&>(tape).Copy(source_.First(sizeof(T)),
                                         destination_.First(sizeof(T)));
  }

 private:
  const Place source_;
  const Place destination_;
};

}  // namespace

KernelOr MakeCopy(std::vector<CopyPlan> plans) {
  if (plans.size() == 1) {
    const CopyPlan& plan = plans[0];
    const StridedCopy copy(plan.source.item_size, plan.source.shape,
                           plan.source.strides, plan.destination.strides);
    if (copy.dense()) {
      switch (copy.bytes()) {
        case 1:
          return std::unique_ptr<Kernel>(new CopyOne<uint8_t>(plan));
        case 2:
          return std::unique_ptr<Kernel>(new CopyOne<uint16_t>(plan));
        case 4:
          return std::unique_ptr<Kernel>(new CopyOne<uint32_t>(plan));
        case 8:
          return std::unique_ptr<Kernel>(new CopyOne<uint64_t>(plan));
      }
    }
  }
  return std::unique_ptr<Kernel>(new CopyKernel(plans));
}

}  // namespace ipu::model::IPU_SIMD_NS
