#include "jaxlib/ipu/codelets/dynamic_window.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "jaxlib/ipu/codelets/windows.h"
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

// A guess: longer windows take longer than a call that copies them.
constexpr int64_t kMostWords = 32;

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
    start_ = {static_cast<int32_t>(starts_[0].limit),
              static_cast<int32_t>(starts_[0].step)};
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const auto [from, to] = Ends(memory);
    copy_.Run(from, to, threads);
  }

  bool Record(model::Tape& tape) const override {
    if (copy_.bytes() >= StridedCopy::kParallelBytes) return false;
    if (IsWords() && RecordWords(static_cast<Tape&>(tape))) return true;
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
  // Whether a window is a few words, contiguous on both sides, with one 32-bit
  // start: `x[i]` in a loop.
  bool IsWords() const {
    return copy_.dense() && copy_.bytes() % 4 == 0 &&
           copy_.bytes() <= 4 * kMostWords && starts_.size() == 1 &&
           starts_[0].dtype == DType::kI32 && starts_[0].step >= 0 &&
           starts_[0].step * starts_[0].limit <= INT32_MAX - copy_.bytes() &&
           starts_[0].limit <= INT32_MAX && starts_[0].step <= INT32_MAX;
  }

  bool RecordWords(Tape& tape) const {
    const Item index{starts_[0].base, starts_[0].offset, sizeof(int32_t)};
    const Item tensor{tensor_.base, tensor_.offset, 0};
    const Item dense{dense_.base, dense_.offset,
                     static_cast<uint32_t>(copy_.bytes())};
    const bool words = tensor_.item_size == 4;
    return direction_ == Direction::kIntoWindow
               ? tape.Update(index, tensor, start_, dense, words)
               : tape.Slice(index, tensor, start_, dense, words);
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
  WindowStart start_{};  // if it is a few words
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
