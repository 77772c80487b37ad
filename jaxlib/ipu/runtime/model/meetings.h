// Where the devices that run a program together meet in its collectives.
//
// A device arrives and waits until its whole group has arrived at the same
// collective; the last to arrive does the work of all. A device is in one place
// at a time, so nothing needs to count collectives. If none of the devices that
// still run could ever go on, because their collectives do not match, all fail
// at once. So they do with the first error of any of them.
//
// If a group has devices of other processes, its last device of this process
// starts an exchange with these, and somebody has to finish it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_MEETINGS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_MEETINGS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/collective.h"
#include "jaxlib/ipu/runtime/model/exchange.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/interrupt.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// Of one run; thread-safe. Devices are named by their partition numbers.
class Meetings {
 public:
  // `devices` has the ids of the partitions' devices, `program` the program's
  // name, for error messages. `run`: see Gang.
  Meetings(std::vector<int64_t> devices, std::string program,
           ProcessRunPtr run);

  // Whether a partition is one of this process.
  bool IsOwn(uint32_t partition) const;

  // A device has arrived at a collective, after `cycles` of its run. Does not
  // block, but for the work of its group if it is the last. Returns an exchange
  // that has to be finished, or null.
  std::unique_ptr<Exchange> Arrive(const Collective& collective,
                                   const Memory& memory, double cycles,
                                   ThreadPool& threads);

  // Waits for other processes, at most for `patience`, and if their parts are
  // there does the work of an exchange's group. Returns whether the exchange is
  // over: done or failed.
  bool Finish(Exchange& exchange, std::chrono::milliseconds patience,
              const InterruptWatch& watch, ThreadPool& threads);

  // Blocks until a device that has arrived may go on; returns the run's error
  // if it may not. Ctrl-C is one.
  Status Await(uint32_t partition, const InterruptWatch& watch);

  // The cycles of the modelled machine in which a device has waited so far.
  double WaitingCycles(uint32_t partition) const;

  // Whether the device does not wait.
  bool Runs(uint32_t partition) const;

  // A device has ended. Only the first call for each has an effect.
  void End(uint32_t partition, const Status& status);

  // The first error of any device.
  Status status() const;

 private:
  // Devices of other processes are elsewhere, whatever they do.
  enum class State { kRuns, kWaits, kEnded, kElsewhere };
  struct Device {
    int64_t id = 0;
    State state = State::kRuns;
    const Collective* at = nullptr;  // while it waits
    Memory memory{};
    double cycles = 0;  // of its own work when it arrived last
    double waited = 0;
    std::condition_variable changed;
  };

  void Complete(std::span<const uint32_t> group,
                const std::function<Status()>& work);

  // These require the lock.
  bool IsComplete(const Collective& collective,
                  std::span<const uint32_t> group) const;
  void WaitForLatest(std::span<const uint32_t> group);
  void Stopped();
  void Fail(Status status);
  Status Mismatch() const;

  const std::string program_;
  const ProcessRunPtr run_;
  mutable std::mutex mutex_;
  std::deque<Device> devices_;  // by partition
  size_t running_ = 0;
  // How often each group has met others of other processes.
  std::map<std::vector<uint32_t>, uint64_t> exchanges_;
  Status status_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_MEETINGS_H_
