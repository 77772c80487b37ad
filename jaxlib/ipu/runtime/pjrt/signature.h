// A program's signature as an HLO module: its parameters, and one opaque
// instruction that makes its results of them. Row-major throughout.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_

#include <string>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

// A serialised HloModuleProtoWithConfig.
std::string MakeSignature(const ProgramInfo& info);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SIGNATURE_H_
