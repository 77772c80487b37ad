// Memory that machine code made at run time is executed from.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <span>

namespace ipu::model {

// A function's code; it stays there as long as this does.
using CodeHandle = std::shared_ptr<const void>;

// Copies code that runs from any address. Null if the system lets nobody
// execute what they have written.
CodeHandle PlaceCode(std::span<const uint8_t> code);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_CODE_MEMORY_H_
