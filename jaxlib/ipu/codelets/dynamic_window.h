// The kernel of a dynamic slice and of a dynamic update: one copy, from or to
// where the indices say.

#ifndef JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
#define JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

enum class Direction : uint8_t { kOutOfWindow, kIntoWindow };

// Copies between a window of `tensor`, which has the iteration space's rank,
// and `dense`, which walks the iteration space. The window's starts are the
// compute set's operands 1 and up, one for each of `dynamic_dims`.
KernelOr MakeWindowCopy(const std::string& codelet, Direction direction,
                        const ComputeSet& set, const View& tensor,
                        const Operand& dense,
                        const std::vector<int32_t>& dynamic_dims);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_DYNAMIC_WINDOW_H_
