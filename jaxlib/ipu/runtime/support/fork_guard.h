// Knows whether this process is the child of a fork that did not exec.
//
// Threads do not survive a fork: work that is handed to a queue in the child
// would wait for ever, and a lock may be held by a thread that is gone. Whoever
// needs threads asks here first and fails with a message instead.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// How many forks lie between this process and the one that loaded the library.
// Objects that own threads remember it, and compare.
uint32_t ForkGeneration();

// FAILED_PRECONDITION when the process was forked after `generation`.
Status CheckNotForked(uint32_t generation);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_FORK_GUARD_H_
