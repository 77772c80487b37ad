#include "jaxlib/ipu/runtime/program/validate.h"

#include "jaxlib/ipu/runtime/program/validate_internal.h"

namespace ipu::program {

Status Validate(const Program& program, size_t constants_bytes) {
  IPU_RETURN_IF_ERROR(ValidateTensors(program, constants_bytes));
  return ValidateSteps(program);
}

}  // namespace ipu::program
