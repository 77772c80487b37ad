// A step of a program that calls a host function, as the model runs it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_HOST_CALL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_HOST_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/host/host_function.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// A host function bound to one place in a program and to the roots it works on.
// The model's memory is the host's, so operands and results are passed without
// a copy, except for operands that a result overwrites.
class HostCall {
 public:
  // `where` describes the call site in error messages.
  HostCall(std::unique_ptr<host::Function> function, std::vector<View> operands,
           std::vector<View> results, std::vector<int32_t> aliases,
           std::string where);

  Status Run(const Memory& memory) const;

  bool caller_waits() const { return function_->caller_waits(); }

 private:
  const std::unique_ptr<host::Function> function_;
  const std::vector<View> operands_;
  const std::vector<View> results_;
  const std::vector<int32_t> aliases_;
  const std::string where_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_HOST_CALL_H_
