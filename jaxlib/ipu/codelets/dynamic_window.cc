#include "jaxlib/ipu/codelets/dynamic_window.h"

#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

StatusOr<DynamicWindow> DynamicWindow::Make(
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
  DynamicWindow window;
  std::vector<bool> seen(set.shape.size());
  for (size_t k = 0; k < dynamic_dims.size(); ++k) {
    const int32_t d = dynamic_dims[k];
    if (d < 0 || d >= static_cast<int32_t>(set.shape.size()) || seen[d]) {
      return refuse("dimension " + std::to_string(d) +
                    " does not exist or is given twice");
    }
    seen[d] = true;
    const View& index = set.operands[k + 1].view;
    if (!program::IsInteger(index.dtype)) {
      return refuse("a start index has the element type " +
                    std::to_string(index.dtype) + ", not an integer");
    }
    for (int64_t n : index.shape) {
      if (n != 1) return refuse("a start index is no scalar");
    }
    window.starts_.push_back({index, tensor.strides[d] * tensor.item_size,
                              tensor.shape[d] - set.shape[d]});
  }
  return window;
}

int64_t DynamicWindow::Offset(const Memory& memory) const {
  int64_t offset = 0;
  for (const Start& s : starts_) {
    offset +=
        s.step * ClampedStart(s.index.dtype, s.index.Data(memory), s.limit);
  }
  return offset;
}

}  // namespace ipu::model::IPU_SIMD_NS
