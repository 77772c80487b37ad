#include "jaxlib/ipu/codelets/dynamic_window.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "jaxlib/ipu/codelets/recorded_windows.h"
#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
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

// What is recorded of a window with indices of 32 bits: `x[i]` in a loop.
std::optional<RecordedWindows> MakeRecorded(const std::vector<Start>& starts,
                                            const View& tensor,
                                            const View& dense,
                                            const StridedCopy& copy) {
  constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();
  if (!copy.dense()) return std::nullopt;
  WindowStart start;
  std::vector<Item> indices;
  for (const Start& s : starts) {
    if (s.dtype != DType::kI32 || s.limit > kHighest || s.step > kHighest ||
        s.step < 0) {
      return std::nullopt;
    }
    if (s.limit == 0) continue;  // whatever the index is
    start.indices.push_back(
        {static_cast<int32_t>(s.limit), static_cast<int32_t>(s.step)});
    indices.push_back({s.base, s.offset, sizeof(int32_t)});
  }
  return RecordedWindows::Make(std::move(start), std::move(indices), tensor,
                               dense, copy.bytes());
}

class WindowCopy : public Kernel {
 public:
  WindowCopy(Direction direction, std::vector<Start> starts, View tensor,
             View dense, const StridedCopy& copy)
      : direction_(direction),
        starts_(std::move(starts)),
        tensor_(std::move(tensor)),
        dense_(std::move(dense)),
        copy_(copy),
        recorded_(MakeRecorded(starts_, tensor_, dense_, copy_)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const auto [from, to] = Ends(memory);
    copy_.Run(from, to, threads);
  }

  bool Record(model::Tape& of) const override {
    Tape& tape = static_cast<Tape&>(of);
    if (copy_.bytes() >= StridedCopy::kParallelBytes) return false;
    if (recorded_ &&
        (direction_ == Direction::kIntoWindow ? recorded_->Update(tape)
                                              : recorded_->Slice(tape))) {
      return true;
    }
    tape.Call(
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
  const std::optional<RecordedWindows> recorded_;
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
