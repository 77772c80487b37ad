// A run of a program whose partitions are in several processes, as one of the
// processes sees it.
//
// Messages have tags: sender and receiver of one agree on it. They are buffered
// where they arrive, so that sending never waits for the receiver.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_PROCESS_RUN_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_PROCESS_RUN_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/support/aligned_bytes.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// Thread-safe.
class ProcessRun {
 public:
  struct Message {
    std::string what;  // for the receiver to check that it expects this one
    AlignedBytes data;
  };

  virtual ~ProcessRun() = default;

  // The process that has a partition, and this one.
  virtual int ProcessOf(uint32_t partition) const = 0;
  virtual int process() const = 0;

  // How long to wait for another process.
  virtual std::chrono::milliseconds timeout() const = 0;

  // Copies the data and returns. Whether a process receives it shows when
  // something is to be received from it.
  virtual Status Send(std::span<const int> processes, std::string_view tag,
                      std::string_view what, std::span<const char> data) = 0;

  // Waits for a message, at most for `patience`; returns null if there was
  // none. An error if the other process has failed or ended.
  virtual StatusOr<std::unique_ptr<Message>> Receive(
      int process, std::string_view tag,
      std::chrono::milliseconds patience) = 0;

  // Lets the other processes that wait for this one in this run fail with an
  // error. Only the first call has an effect.
  virtual void Fail(const Status& status) = 0;
};

using ProcessRunPtr = std::shared_ptr<ProcessRun>;

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_PROCESS_RUN_H_
