// The way to Python functions, which is one C function that Python hands over.
//
// A program names a Python function by two numbers, so nothing here holds an
// object of Python's. Calls happen on the threads that run programs; when
// Python ends it takes the way back, which waits for the calls under way.

#ifndef JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jaxlib/ipu/runtime/host/host_function.h"

extern "C" {

// Calls function `number` of process `process` (jaxlib/ipu/host_functions.py),
// from any thread, several at once. Returns 1 when the results are written;
// anything else is a failure, which ipu_host_call_failed may have explained.
typedef int (*ipu_host_caller)(uint64_t process, uint64_t number,
                               const void* const* operands,
                               void* const* results, void* sink);

// Null takes the way to Python away, and returns when no call is under way.
__attribute__((visibility("default"))) void ipu_set_host_caller(
    ipu_host_caller caller);

// Says why the call that was given `sink` fails.
__attribute__((visibility("default"))) void ipu_host_call_failed(
    void* sink, const char* message, size_t size);

}  // extern "C"

namespace ipu::host {

inline constexpr std::string_view kPythonTarget = "ipu_python_callback";

FunctionOr BindPython(const CallSite& site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_PYTHON_FUNCTION_H_
