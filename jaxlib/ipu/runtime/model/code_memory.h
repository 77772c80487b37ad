// Executable memory for machine code generated at run time.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <span>

namespace ipu::model {

// A function's entry point. Keeps its code alive.
using CodeHandle = std::shared_ptr<const void>;

// Copies position-independent code into executable memory. Returns null if the
// system forbids executing memory that was written.
CodeHandle PlaceCode(std::span<const uint8_t> code);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_
