// XLA FFI targets: host functions that users compile and register with JAX.
//
// Targets are registered by name; BindFfi binds one to a call site of a program
// and runs its handlers without Python.

#ifndef JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_

#include <cstddef>

#include "jaxlib/ipu/runtime/host/host_function.h"

extern "C" {

// Registers the handlers of a target, one per stage of ffi_abi.h; all but the
// last may be null. Registering a known target replaces its handlers.
// `prepare`, if not null, is called before each call site is bound, because the
// program may have been compiled by another process, which had loaded the
// libraries it needs. Returns 0, or a PJRT error code, with its message
// truncated to `error_size` bytes including the terminating zero.
__attribute__((visibility("default"))) int ipu_register_ffi_target(
    const char* name, void* const* handlers, void (*prepare)(), char* error,
    size_t error_size);

// Registers a type of handler states: an XLA_FFI_TypeId and an
// XLA_FFI_TypeInfo or null. Returns as above.
__attribute__((visibility("default"))) int ipu_register_ffi_type(
    void* type_id, const void* type_info, char* error, size_t error_size);

}  // extern "C"

namespace ipu::host {

// NOT_FOUND if the target is not registered.
FunctionOr BindFfi(CallSite site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_FFI_FUNCTION_H_
