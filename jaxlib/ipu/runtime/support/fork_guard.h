// Detects that this process is the child of a fork without exec.
//
// Threads do not survive a fork: in the child, queued work would wait forever,
// and locks may be held by threads that no longer exist. Code that needs
// threads checks first and fails with a message instead.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// The number of forks between this process and the one that loaded the library.
// Objects that own threads store it and compare.
uint32_t ForkGeneration();

// FAILED_PRECONDITION if the process was forked after `generation` was read.
Status CheckNotForked(uint32_t generation);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_
