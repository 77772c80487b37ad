// PJRT's element types: how wide they are and what MLIR calls them.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_

#include <cstddef>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

struct DTypeInfo {
  const char* mlir;  // its name in MLIR, null when there is none
  size_t bytes;      // per element in memory: at least one
  const char* zero;  // how MLIR writes a zero of it
};

// A type PJRT does not know has zero bytes.
DTypeInfo InfoOf(DType dtype);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_
