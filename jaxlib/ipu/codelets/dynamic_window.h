// The kernel of dynamic slices and dynamic updates: one copy from or to a
// window whose start is known at run time.

#ifndef JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
#define JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

enum class Direction : uint8_t { kOutOfWindow, kIntoWindow };

// Copies between a window of `tensor`, which has the rank of the iteration
// space, and `dense`, which is accessed along the iteration space. The starts
// of the window are operands 1 and up of the compute set, one for each of
// `dynamic_dims`.
KernelOr MakeWindowCopy(const std::string& codelet, Direction direction,
                        const ComputeSet& set, const View& tensor,
                        const Operand& dense,
                        const std::vector<int32_t>& dynamic_dims);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
