#include "jaxlib/ipu/runtime/support/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace ipu {
namespace {

std::atomic<uint32_t> generation{0};

// Registered when the library is loaded: the handler must be there before the
// first fork, whoever makes it.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, +[] { generation.fetch_add(1); });

}  // namespace

uint32_t ForkGeneration() { return generation.load(std::memory_order_relaxed); }

Status CheckNotForked(uint32_t expected) {
  if (ForkGeneration() == expected) [[likely]] {
    return Status();
  }
  return Status(
      Code::kFailedPrecondition,
      "this process was forked after JAX had opened the IPU, and the threads "
      "that serve it did not follow. Start the child with the "
      "multiprocessing start method 'spawn', or use JAX only in the child.");
}

}  // namespace ipu
