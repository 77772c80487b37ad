// A program's signature as an HLO module: its parameters and one opaque
// custom call that computes its results from them. Layouts are row-major except
// where the program states another order of dimensions.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_

#include <string>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

// Returns a serialised HloModuleProtoWithConfig. For a program of several
// devices it is one device's signature, and has the shardings of the whole
// arrays, from which jaxlib learns how results are split.
std::string MakeSignature(const ProgramInfo& info);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_
