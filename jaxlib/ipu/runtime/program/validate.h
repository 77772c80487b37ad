// Validates a decoded program before an engine trusts it.
//
// Takes untrusted records. After success, an engine may follow every index and
// view in the program without checks: all records exist, and every element that
// a tensor, an access or a move can reach is within its storage. Fields that
// only a codelet can interpret are checked by its factory instead.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_

#include <cstddef>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

// DATA_LOSS for the first invalid record; the message has the value in
// question.
Status Validate(const Program& program, size_t constants_bytes);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_H_
