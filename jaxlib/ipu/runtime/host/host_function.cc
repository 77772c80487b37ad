#include "jaxlib/ipu/runtime/host/host_function.h"

#include <utility>

#include "jaxlib/ipu/runtime/host/ffi_function.h"
#include "jaxlib/ipu/runtime/host/python_function.h"

namespace ipu::host {

FunctionOr Bind(CallSite site) {
  if (site.target == kPythonTarget) return BindPython(site);
  return BindFfi(std::move(site));
}

}  // namespace ipu::host
