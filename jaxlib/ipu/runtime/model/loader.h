// Turns a validated program into an Executable.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_LOADER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_LOADER_H_

#include <memory>

#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/program/container.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// Creates every kernel of the program and lays out its control flow. Steps that
// move nothing in a machine with one memory keep their cost and do no work.
StatusOr<std::unique_ptr<const Executable>> MakeExecutable(
    const program::Contents& contents, const Factories& factories);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_LOADER_H_
