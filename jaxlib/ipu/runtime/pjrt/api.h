// The PJRT function table: everything JAX can call on the IPU plugin.
//
// GetPjrtApi returns a table in which every slot is callable. Each of the
// Add...Functions fills the slots of one PJRT object; functions the plugin does
// not implement return UNIMPLEMENTED and name themselves.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_API_H_
#define JAXLIB_IPU_RUNTIME_PJRT_API_H_

#include "xla/pjrt/c/pjrt_c_api.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi();

namespace ipu {

void AddPluginFunctions(PJRT_Api* api);

// Fills the slots of functions that are not implemented.
void AddUnsupportedFunctions(PJRT_Api* api);

// The table declared by the PJRT header this library was built with, followed
// by room for the functions that later versions of PJRT append.
struct ApiTable {
  PJRT_Api api;
  void* later[48];
};

// Fills every slot that is still null, including those of later PJRT versions:
// a caller that checks neither the version nor the size then gets an error that
// names the missing function.
void AddLaterFunctions(ApiTable* table);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_API_H_
