#include "jaxlib/ipu/codelets/dynamic_window.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/row_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

struct Start {
  uint32_t base;   // of the index
  int64_t offset;  // of the index, in bytes
  DType dtype;
  int64_t step;   // bytes in the tensor per index
  int64_t limit;  // the highest valid start
};

StatusOr<std::vector<Start>> MakeStarts(
    const std::string& codelet, const ComputeSet& set, const View& tensor,
    const std::vector<int32_t>& dynamic_dims) {
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(codelet + ": " + why);
  };
  if (tensor.shape.size() != set.shape.size()) {
    return refuse("a window of rank " + std::to_string(set.shape.size()) +
                  " in a tensor of rank " +
                  std::to_string(tensor.shape.size()));
  }
  if (set.operands.size() != dynamic_dims.size() + 1) {
    return refuse("it has " + std::to_string(dynamic_dims.size()) +
                  " dynamic dimensions but " +
                  std::to_string(set.operands.size() - 1) + " start indices");
  }
  for (size_t d = 0; d < set.shape.size(); ++d) {
    if (set.shape[d] > tensor.shape[d]) {
      return refuse("a window of " + std::to_string(set.shape[d]) +
                    " in a dimension of " + std::to_string(tensor.shape[d]));
    }
  }
  std::vector<Start> starts;
  std::vector<bool> seen(set.shape.size());
  for (size_t k = 0; k < dynamic_dims.size(); ++k) {
    const int32_t d = dynamic_dims[k];
    if (d < 0 || d >= static_cast<int32_t>(set.shape.size()) || seen[d]) {
      return refuse("dimension " + std::to_string(d) +
                    " does not exist or is given twice");
    }
    seen[d] = true;
    const View& index = set.operands[k + 1].view;
    if (!IsInteger(index.dtype)) {
      return refuse("a start index has the element type " +
                    std::to_string(Number(index.dtype)) + ", not an integer");
    }
    for (int64_t n : index.shape) {
      if (n != 1) return refuse("a start index is not a scalar");
    }
    starts.push_back({index.base, index.offset, index.dtype,
                      tensor.strides[d] * tensor.item_size,
                      tensor.shape[d] - set.shape[d]});
  }
  return starts;
}

// A window of a few words, contiguous on both sides, with one 32-bit start:
// `x[i]` in a loop, where the overhead of a general copy would exceed its work.
struct WordWindow {
  uint32_t index_base, tensor_base, dense_base;
  int32_t limit;
  int64_t index, tensor, dense;  // bytes
  int64_t step;

  // Moves kWords without writing any byte twice: the next step may load what
  // this one stores, and loads are slow after overlapping stores.
  template <Direction kDirection, int64_t kWords>
  static void Move(const Step& step, const Frame& frame) {
    const auto& w =
        *static_cast<const WordWindow*>(PayloadOf<const void*>(step));
    int32_t start;
    std::memcpy(&start, frame.bases[w.index_base] + w.index, sizeof start);
    start = std::clamp(start, int32_t{0}, w.limit);
    char* window = frame.bases[w.tensor_base] + w.tensor + w.step * start;
    char* dense = frame.bases[w.dense_base] + w.dense;
    const bool into = kDirection == Direction::kIntoWindow;
    const char* from = into ? dense : window;
    char* to = into ? window : dense;
    constexpr int64_t kVectors = kWords / 8, kRest = kWords % 8;
    for (int64_t v = 0; v < kVectors; ++v) {
      CopyExactly<32>{}(from, to);
      from += 32;
      to += 32;
    }
    if constexpr (kRest & 4) CopyExactly<16>{}(from, to);
    constexpr int64_t kPairs = 4 * (kRest & 4), kLast = 4 * (kRest & 6);
    if constexpr (kRest & 2) CopyExactly<8>{}(from + kPairs, to + kPairs);
    if constexpr (kRest & 1) CopyExactly<4>{}(from + kLast, to + kLast);
  }
};

// kMoves[n - 1] moves n words. A guess: longer copies take longer than the call
// of the general one.
constexpr int64_t kMostWords = 32;
using MoveTable = std::array<StepFn, kMostWords>;

template <Direction kDirection, size_t... kWords>
constexpr MoveTable MakeMoves(std::index_sequence<kWords...>) {
  return {WordWindow::Move<kDirection, kWords + 1>...};
}

template <Direction kDirection>
constexpr MoveTable kMoves =
    MakeMoves<kDirection>(std::make_index_sequence<kMostWords>());

class WindowCopy : public Kernel {
 public:
  WindowCopy(Direction direction, std::vector<Start> starts, View tensor,
             View dense, const StridedCopy& copy)
      : direction_(direction),
        starts_(std::move(starts)),
        tensor_(std::move(tensor)),
        dense_(std::move(dense)),
        copy_(copy) {
    if (!IsWords()) return;
    const Start& start = starts_[0];
    words_ = {start.base,    tensor_.base,
              dense_.base,   static_cast<int32_t>(start.limit),
              start.offset,  tensor_.offset,
              dense_.offset, start.step};
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const auto [from, to] = Ends(memory);
    copy_.Run(from, to, threads);
  }

  bool Record(model::Tape& tape) const override {
    if (copy_.bytes() >= StridedCopy::kParallelBytes) return false;
    if (IsWords()) {
      const auto& moves = direction_ == Direction::kIntoWindow
                              ? kMoves<Direction::kIntoWindow>
                              : kMoves<Direction::kOutOfWindow>;
      static_cast<Tape&>(tape).Call(moves[copy_.bytes() / 4 - 1], &words_);
      return true;
    }
    static_cast<Tape&>(tape).Call(
        [](const Step& step, const Frame& frame) {
          const auto* self =
              static_cast<const WindowCopy*>(PayloadOf<const void*>(step));
          const auto [from, to] = self->Ends(Memory{frame.bases});
          self->copy_.Run(from, to);
        },
        this);
    return true;
  }

 private:
  bool IsWords() const {
    return copy_.dense() && copy_.bytes() % 4 == 0 &&
           copy_.bytes() <= 4 * kMostWords && starts_.size() == 1 &&
           starts_[0].dtype == DType::kI32 && starts_[0].limit <= INT32_MAX;
  }

  struct FromTo {
    const char* from;
    char* to;
  };

  FromTo Ends(const Memory& memory) const {
    char* window = tensor_.Data(memory);
    for (const Start& s : starts_) {
      const char* index = memory.bases[s.base] + s.offset;
      window += s.step * ClampedStart(s.dtype, index, s.limit);
    }
    char* const dense = dense_.Data(memory);
    if (direction_ == Direction::kIntoWindow) return {dense, window};
    return {window, dense};
  }

  const Direction direction_;
  const std::vector<Start> starts_;
  const View tensor_;
  const View dense_;
  const StridedCopy copy_;
  WordWindow words_{};
};

}  // namespace

KernelOr MakeWindowCopy(const std::string& codelet, Direction direction,
                        const ComputeSet& set, const View& tensor,
                        const Operand& dense,
                        const std::vector<int32_t>& dynamic_dims) {
  if (tensor.dtype != dense.view.dtype) {
    return InvalidArgument(codelet + ": operand and result differ in type");
  }
  auto starts = MakeStarts(codelet, set, tensor, dynamic_dims);
  if (!starts.ok()) return starts.status();
  std::vector<int64_t> strides;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    strides.push_back(dense.Stride(d));
  }
  const bool into = direction == Direction::kIntoWindow;
  const StridedCopy copy(tensor.item_size, set.shape,
                         into ? strides : tensor.strides,
                         into ? tensor.strides : strides);
  if (copy.bytes() == 0) return KernelOr(nullptr);
  return KernelOr(std::make_unique<WindowCopy>(direction, std::move(*starts),
                                               tensor, dense.view, copy));
}

}  // namespace ipu::model::IPU_SIMD_NS
