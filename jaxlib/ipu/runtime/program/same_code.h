// Compares the bodies of calls (schema.Call).

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_

#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

// The steps as bytes, but for costs, locations and the constants of register
// programs: lists of steps with equal bytes can share one function, provided
// that the calls among them are compared, too. Of these there is only the
// function's number, so that comparing all bodies of a program takes time and
// memory linear in its size, however deep calls nest.
std::string CodeOf(const std::vector<Step>& steps);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_SAME_CODE_H_
