// Reads the file format of programs, which jaxlib/ipu/program/container.py
// writes and describes.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_CONTAINER_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_CONTAINER_H_

#include <cstdint>
#include <span>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

struct Contents {
  Program program;
  std::span<const uint8_t> constants;  // points into the bytes passed to Read
};

// Checks the header and the checksum and decodes the records, but does not
// check their contents; that is for Validate (validate.h). DATA_LOSS for
// truncated or corrupted bytes, INVALID_ARGUMENT for another format version.
StatusOr<Contents> Read(std::span<const uint8_t> bytes);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_CONTAINER_H_
