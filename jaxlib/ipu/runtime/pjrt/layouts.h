// The PJRT layouts extension: the order of dimensions in memory.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_LAYOUTS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_LAYOUTS_H_

#include <string>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "xla/pjrt/c/pjrt_c_api.h"

// In XLA's notation: dimensions from minor to major, such as {1,0}.
struct PJRT_Layouts_MemoryLayout {
  std::string text;
};

namespace ipu {

PJRT_Layouts_MemoryLayout LayoutOf(const TensorInfo& info);

void AddLayoutsExtension(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_LAYOUTS_H_
