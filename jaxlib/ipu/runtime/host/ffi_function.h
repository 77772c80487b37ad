// Targets of XLA's FFI: functions that users compile and register with JAX.

#ifndef JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_

#include <cstddef>

#include "jaxlib/ipu/runtime/host/host_function.h"

extern "C" {

// Registers the handlers of a target, by the stages of ffi_abi.h; only the last
// must be there. A target that is known already gets new ones. `prepare`, or
// null, is called before each call site is bound: it may have been made in
// another process, whose libraries were loaded. Returns 0, or a PJRT error code
// and its message, cut to `error_size` with the ending zero.
__attribute__((visibility("default"))) int ipu_register_ffi_target(
    const char* name, void* const* handlers, void (*prepare)(), char* error,
    size_t error_size);

// Registers a type of handlers' states: an XLA_FFI_TypeId and, or null, an
// XLA_FFI_TypeInfo. Returns as above.
__attribute__((visibility("default"))) int ipu_register_ffi_type(
    void* type_id, const void* type_info, char* error, size_t error_size);

}  // extern "C"

namespace ipu::host {

// NOT_FOUND if there is no such target.
FunctionOr BindFfi(CallSite site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_
