// A call of a program on one device: what it takes, and what it gives back.
//
// A call takes its arguments' storage, allocates that of its results, or reuses
// a donated argument's where the program allows it. Everything that can fail is
// done before anything is consumed. execute.cc runs calls of one device,
// execute_gang.cc those of several.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_CALL_H_
#define JAXLIB_IPU_RUNTIME_PJRT_CALL_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/array_layouts.h"
#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/host_calls.h"
#include "jaxlib/ipu/runtime/pjrt/profiler.h"

namespace ipu {

// One call in progress, with everything it keeps alive.
struct Call {
  ExecutablePtr executable;
  PJRT_Device* device = nullptr;
  std::vector<StoragePtr> arguments = {};
  std::vector<StoragePtr> results = {};
  std::vector<EventPtr> pending = {};  // arguments that are not ready yet
  HostCallPtr submitter = nullptr;
  // Of the exchanges that move arguments first (array_layouts.h).
  double moving_cycles = 0;
  double moving_bytes = 0;
};

// The arguments that a call consumes: those that the program donates, except
// for those the caller asked to keep.
std::vector<uint32_t> DonatedArguments(const Executable& executable,
                                       const PJRT_ExecuteOptions* options);

// What follows requires the device's dispatch lock.

// Fills everything in `call` but its results. Consumes nothing. `poison` is the
// error of an argument, if one failed.
Status TakeArguments(std::span<PJRT_Buffer* const> arguments,
                     std::span<const uint32_t> donated, Call* call,
                     Status* poison);

// The SRAM that a call takes, and what it frees.
class SramClaim {
 public:
  SramClaim(std::span<PJRT_Buffer* const> arguments,
            std::span<const uint32_t> donated, const Call& call);

  // Checks that the run fits beside everything else there, reserves space for
  // its results and releases the donated arguments'.
  Status Admit(Call* call, Sram::Room* results);

  // The same in two parts: nothing is consumed before the second one.
  Status Reserve(Sram::Room* results);
  void Commit(Call* call);

 private:
  Status CheckExcess(const SramExcess& excess, const Sram::Room& results);
  void ApplyMoves(Call* call);

  const std::span<PJRT_Buffer* const> arguments_;
  const Executable& executable_;
  Sram& sram_;
  const SramNeed need_;
  const ArgumentMoves moves_;
  std::vector<Resident*> leaving_;
};

// Allocates the results, or reuses the storage of the arguments they replace if
// nothing else reads it: neither a pending call nor one that this call may
// overtake. Consumes the donated arguments.
void GiveResultsMemory(std::span<PJRT_Buffer* const> arguments,
                       std::span<const uint32_t> donated, bool in_order,
                       Call* call);

// Makes buffers of results' storage, which are ready when `done` is. Needs no
// lock.
void MakeResults(const Executable& executable, PJRT_Device* device,
                 std::vector<StoragePtr> results, const EventPtr& done,
                 Sram::Room* room, PJRT_Buffer** list);

// What follows runs the call.

// Blocks until all arguments are ready; returns the error of one that failed.
Status WaitForArguments(const Call& call);

// Where a call's arguments and results are.
class Pointers {
 public:
  // RESOURCE_EXHAUSTED if the host has no memory for one of them.
  Status Find(const Call& call);

  Share share(RunCounters* counters) const {
    return {arguments_, results_, counters};
  }

 private:
  std::vector<const void*> arguments_;
  std::vector<void*> results_;
};

// The place of a call in its device's queue among those that may wait for their
// callers. Calls of programs that use feeds run in order.
class Waiting {
 public:
  explicit Waiting(const Call& call);

  // Whether all earlier calls that use feeds are over.
  bool IsItsTurn() const { return over_ == nullptr || *over_ == turn_; }
  void Leave();

 private:
  std::atomic<int>* programs_ = nullptr;   // of the device
  std::atomic<uint64_t>* over_ = nullptr;  // likewise: calls that use feeds
  uint64_t turn_ = 0;
};

// Notes a run that succeeds. Made when it begins.
class RunRecord {
 public:
  // `gang`: see ProfiledRun.
  explicit RunRecord(uint64_t gang = 0)
      : begin_ns_(Profiler::Begin()), gang_(gang) {}

  // What the run is to fill.
  RunCounters Counters() const;
  void Finish(const Call& call, RunCounters counters) const;

 private:
  const int64_t begin_ns_;  // 0: nobody profiles
  const uint64_t gang_;
};

// Logs what something took, if the user asked for that.
void LogCycles(const PJRT_Device& device, const std::string& what,
               double cycles);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_CALL_H_
