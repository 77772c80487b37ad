// The steps of a program, as profilers see them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_STEP_INFO_H_
#define JAXLIB_IPU_RUNTIME_MODEL_STEP_INFO_H_

#include <vector>

#include "jaxlib/ipu/runtime/engine/steps.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// Requires a validated program. Loops, branches and host steps have the numbers
// that the loader gives them.
std::vector<StepInfo> MakeSteps(const program::Program& program);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_STEP_INFO_H_
