// The shapes that LAPACK's functions take and return.
//
// jaxlib's handlers of LAPACK compute all sizes from some of their operands and
// trust the rest. A program may come from a file, so call sites are checked
// before they are bound.

#ifndef JAXLIB_IPU_RUNTIME_HOST_LAPACK_SHAPES_H_
#define JAXLIB_IPU_RUNTIME_HOST_LAPACK_SHAPES_H_

#include "jaxlib/ipu/runtime/host/host_function.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::host {

// INVALID_ARGUMENT if the site calls a function of LAPACK with operands,
// results or modes that do not belong together. Other targets check their
// operands themselves.
Status CheckLapackCall(const CallSite& site);

}  // namespace ipu::host

#endif  // JAXLIB_IPU_RUNTIME_HOST_LAPACK_SHAPES_H_
