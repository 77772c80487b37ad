// Compares the bodies of calls (schema.Call).

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_

#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

// The steps as bytes, but for costs, locations and the constants of register
// programs: lists of steps with equal bytes can share one function.
std::string CodeOf(const std::vector<Step>& steps);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_
