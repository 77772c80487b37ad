// Host functions that programs call while they run.
//
// A program names a function and its parameters (schema.HostCallback). Loading
// the program finds the function and binds it to the call site, so that a call
// only passes pointers to memory. Functions are looked up by python_function.h
// and ffi_function.h.

#ifndef JAXLIB_IPU_RUNTIME_HOST_HOST_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_HOST_HOST_FUNCTION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::host {

// One place in a program that calls the host.
struct CallSite {
  std::string target;
  std::vector<program::Attribute> attributes;  // see schema.Attribute
  std::vector<TensorInfo> operands;
  std::vector<TensorInfo> results;
};

class Function {
 public:
  virtual ~Function() = default;

  // Operands and results are dense and row-major, with the call site's sizes.
  // Thread-safe.
  virtual Status Call(std::span<const void* const> operands,
                      std::span<void* const> results) = 0;

  // Whether the program's caller expects it to have been called by the time
  // that the program's call returns, as with jax.debug.print.
  virtual bool caller_waits() const { return false; }
};

using FunctionOr = StatusOr<std::unique_ptr<Function>>;

// Finds the function that a call site names.
FunctionOr Bind(CallSite site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_HOST_FUNCTION_H_
