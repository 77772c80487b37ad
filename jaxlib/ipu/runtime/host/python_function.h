// Calls Python functions through one C function pointer that Python registers.
//
// A program names a Python function by two numbers, so this library never holds
// a Python object. Calls happen on the threads that run programs. When Python
// shuts down it unregisters the pointer, which waits for the calls in progress.

#ifndef JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jaxlib/ipu/runtime/host/host_function.h"

extern "C" {

// Calls function `number` of process `process` (jaxlib/ipu/host_functions.py).
// `sizes` has the numbers of operands and results, then the bytes of each.
// Must be thread-safe. Returns 1 when the results are written; any other value
// is a failure, which ipu_host_call_failed may have explained.
typedef int (*ipu_host_caller)(uint64_t process, uint64_t number,
                               const size_t* sizes, const void* const* operands,
                               void* const* results, void* sink);

// Null unregisters the caller and returns when no call is in progress.
__attribute__((visibility("default"))) void ipu_set_host_caller(
    ipu_host_caller caller);

// Sets the error message of the call that was given `sink`.
__attribute__((visibility("default"))) void ipu_host_call_failed(
    void* sink, const char* message, size_t size);

}  // extern "C"

namespace ipu::host {

inline constexpr std::string_view kPythonTarget = "ipu_python_callback";

FunctionOr BindPython(const CallSite& site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_
