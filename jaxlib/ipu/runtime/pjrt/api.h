// The table of functions through which JAX sees an IPU.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_API_H_
#define JAXLIB_IPU_RUNTIME_PJRT_API_H_

#include "xla/pjrt/c/pjrt_c_api.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi();

namespace ipu {

void AddPluginFunctions(PJRT_Api* api);

// Fills the slots of what the plugin refuses; each says its own name.
void AddUnsupportedFunctions(PJRT_Api* api);

// The table of the header that this was built with, and room after it for the
// functions that later versions of PJRT append.
struct ApiTable {
  PJRT_Api api;
  void* later[48];
};

// Fills every slot that is still null, those of later versions included: a
// caller that checks neither version nor size reads what is missing.
void AddLaterFunctions(ApiTable* table);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_API_H_
