// The table of functions through which JAX sees an IPU.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_API_H_
#define JAXLIB_IPU_RUNTIME_PJRT_API_H_

#include "xla/pjrt/c/pjrt_c_api.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi();

namespace ipu {

void AddPluginFunctions(PJRT_Api* api);

// Fills the slots of what the plugin refuses; each says its own name.
void AddUnsupportedFunctions(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_API_H_
