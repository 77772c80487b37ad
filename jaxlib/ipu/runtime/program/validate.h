// Checks a decoded program before an engine trusts it.
//
// After Validate an engine may follow every index and every view in the
// program without looking: they exist, and every element that a tensor, an
// access or a move can reach lies inside its storage. What only a codelet can
// judge (its fields, what its operands must be) its factory checks.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_

#include <cstddef>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

// DATA_LOSS that names the first record found wrong and the value in it.
Status Validate(const Program& program, size_t constants_bytes);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_
