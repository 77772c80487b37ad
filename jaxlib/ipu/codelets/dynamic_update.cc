// DynamicUpdate on the model: one copy to where the indices say.

#include <memory>
#include <utility>

#include "jaxlib/ipu/codelets/dynamic_window.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/strided_copy.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class DynamicUpdateKernel : public Kernel {
 public:
  DynamicUpdateKernel(DynamicWindow window, View update, View result,
                      const StridedCopy& copy)
      : window_(std::move(window)),
        update_(std::move(update)),
        result_(std::move(result)),
        copy_(copy) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    copy_.Run(update_.Data(memory),
              result_.Data(memory) + window_.Offset(memory), threads);
  }

 private:
  const DynamicWindow window_;
  const View update_;
  const View result_;
  const StridedCopy copy_;
};

}  // namespace

KernelOr MakeDynamicUpdate(const ComputeSet& set,
                           const program::DynamicUpdate& fields) {
  if (set.operands.empty() || set.results.size() != 1) {
    return InvalidArgument("dynamic update: takes an update and start indices");
  }
  const Operand& update = set.operands[0];
  const View& result = set.results[0].view;
  if (update.view.dtype != result.dtype) {
    return InvalidArgument("dynamic update: update and result differ in type");
  }
  StatusOr<DynamicWindow> window =
      DynamicWindow::Make("dynamic update", set, result, fields.dynamic_dims);
  if (!window.ok()) return window.status();
  std::vector<int64_t> strides;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    strides.push_back(update.Stride(d));
  }
  const StridedCopy copy(result.item_size, set.shape, strides, result.strides);
  if (copy.bytes() == 0) return KernelOr(nullptr);
  return std::unique_ptr<Kernel>(
      new DynamicUpdateKernel(std::move(*window), update.view, result, copy));
}

}  // namespace ipu::model::IPU_SIMD_NS
