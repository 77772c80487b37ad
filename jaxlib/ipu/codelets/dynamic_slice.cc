// DynamicSlice on the model: one copy from where the indices say.

#include <memory>
#include <utility>

#include "jaxlib/ipu/codelets/dynamic_window.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/strided_copy.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class DynamicSliceKernel : public Kernel {
 public:
  DynamicSliceKernel(DynamicWindow window, View operand, View result,
                     const StridedCopy& copy)
      : window_(std::move(window)),
        operand_(std::move(operand)),
        result_(std::move(result)),
        copy_(copy) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    copy_.Run(operand_.Data(memory) + window_.Offset(memory),
              result_.Data(memory), threads);
  }

 private:
  const DynamicWindow window_;
  const View operand_;
  const View result_;
  const StridedCopy copy_;
};

}  // namespace

KernelOr MakeDynamicSlice(const ComputeSet& set,
                          const program::DynamicSlice& fields) {
  if (set.operands.empty() || set.results.size() != 1) {
    return InvalidArgument("dynamic slice: takes an operand and start indices");
  }
  const View& operand = set.operands[0].view;
  const Operand& result = set.results[0];
  if (operand.dtype != result.view.dtype) {
    return InvalidArgument("dynamic slice: operand and result differ in type");
  }
  StatusOr<DynamicWindow> window =
      DynamicWindow::Make("dynamic slice", set, operand, fields.dynamic_dims);
  if (!window.ok()) return window.status();
  std::vector<int64_t> strides;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    strides.push_back(result.Stride(d));
  }
  const StridedCopy copy(operand.item_size, set.shape, operand.strides,
                         strides);
  if (copy.bytes() == 0) return KernelOr(nullptr);
  return std::unique_ptr<Kernel>(
      new DynamicSliceKernel(std::move(*window), operand, result.view, copy));
}

}  // namespace ipu::model::IPU_SIMD_NS
