// Where the window of a dynamic slice or update is.

#ifndef JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
#define JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model::IPU_SIMD_NS {

// A window of the shape of the iteration space in a tensor of the same rank.
class DynamicWindow {
 public:
  // The starts are the compute set's operands 1 and up, one for each of
  // `dynamic_dims`.
  static StatusOr<DynamicWindow> Make(const std::string& codelet,
                                      const ComputeSet& set, const View& tensor,
                                      const std::vector<int32_t>& dynamic_dims);

  // Bytes from the tensor's to the window's first element.
  int64_t Offset(const Memory& memory) const;

 private:
  struct Start {
    View index;
    int64_t step;   // bytes in the tensor for one index
    int64_t limit;  // the highest that fits
  };

  std::vector<Start> starts_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
