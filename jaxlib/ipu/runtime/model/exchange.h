// A collective whose group is in several processes.
//
// The devices of each process have met in its memory. Then the processes send
// each other what their devices contribute, and each computes the results of
// its own devices, from the same operands in the same order: results have the
// same bits as in one process.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_EXCHANGE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_EXCHANGE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/process_run.h"
#include "jaxlib/ipu/runtime/model/collective.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

class Exchange {
 public:
  // `group` is the collective's, `number` says how often it has met before, and
  // `program` is the program's name, for error messages.
  Exchange(const Collective& collective, std::span<const uint32_t> group,
           uint64_t number, ProcessRun& run, const std::string& program);

  // Sends what the devices of this process contribute: `memories` has those of
  // the group's members that are of this process, in its order.
  Status Send(std::span<const Memory> memories);

  // Waits for what others contribute, at most for `patience`; returns whether
  // all of it is there. An error if a process has failed, does not answer
  // within the run's time-out, or contributes to something else.
  StatusOr<bool> Receive(std::chrono::milliseconds patience);

  // The whole group, once all of it is there.
  std::vector<Member> Members() const;

  std::span<const uint32_t> group() const { return group_; }
  const Collective& collective() const { return collective_; }

 private:
  // Another process, and its members of the group.
  struct Other {
    std::vector<uint32_t> partitions;
    std::unique_ptr<ProcessRun::Message> message;
  };

  Status Check(int process, const ProcessRun::Message& message) const;
  Status TookTooLong(int process) const;

  const Collective& collective_;
  const std::span<const uint32_t> group_;
  ProcessRun& run_;
  const std::string tag_;
  const std::string what_;
  std::vector<size_t> offsets_;  // of each operand in a device's contribution
  size_t size_ = 0;              // of a device's contribution
  std::vector<Memory> memories_;
  std::map<int, Other> others_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_EXCHANGE_H_
