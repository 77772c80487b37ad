// Functions of the host that programs call while they run.
//
// A program names a function and says what it is told (schema.HostCallback).
// When the program is loaded, the function is found and bound to the call site;
// running only passes memory. Who looks for the functions: python_function.h
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

// One place of a program where it calls the host.
struct CallSite {
  std::string target;
  std::vector<program::Attribute> attributes;  // see schema.Attribute
  std::vector<TensorInfo> operands;
  std::vector<TensorInfo> results;
};

class Function {
 public:
  virtual ~Function() = default;

  // Memory is dense and row-major, of the call site's sizes. Several threads
  // may call at once.
  virtual Status Call(std::span<const void* const> operands,
                      std::span<void* const> results) = 0;
};

using FunctionOr = StatusOr<std::unique_ptr<Function>>;

// Finds the function of a call site.
FunctionOr Bind(CallSite site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_HOST_FUNCTION_H_
