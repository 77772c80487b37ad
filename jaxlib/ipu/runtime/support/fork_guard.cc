#include "jaxlib/ipu/runtime/support/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace ipu {
namespace {

std::atomic<uint32_t> generation{0};

// Registered when the library is loaded, so that the handler exists before the
// first fork.
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
      "this process was forked after JAX had opened the IPU, and the IPU's "
      "threads do not exist in the child. Start the child with the "
      "multiprocessing start method 'spawn', or use JAX only in the child.");
}

}  // namespace ipu
