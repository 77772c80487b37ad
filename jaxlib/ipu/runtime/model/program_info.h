// What PJRT has to know of a program: its types, layouts, memory and costs.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_PROGRAM_INFO_H_
#define JAXLIB_IPU_RUNTIME_MODEL_PROGRAM_INFO_H_

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/container.h"

namespace ipu::model {

// Extracts a validated program's description of itself, which refers to its
// bytes.
ProgramInfo MakeInfo(program::Contents contents);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_PROGRAM_INFO_H_
