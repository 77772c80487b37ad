// Properties of PJRT's element types: their size, name and XLA's number.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

struct DTypeInfo {
  size_t bytes;       // per element in memory; at least one
  uint32_t xla_type;  // PrimitiveType of xla/xla_data.proto
  const char* name;   // as StableHLO spells it
};

// `bytes` is zero for a type that PJRT does not define.
DTypeInfo InfoOf(DType dtype);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_DTYPE_H_
