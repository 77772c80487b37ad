// What a device's last finished run did, for `device.ipu_last_run()`.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_LAST_RUN_H_
#define JAXLIB_IPU_RUNTIME_PJRT_LAST_RUN_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

// Thread-safe. Python finds it by its device's id; of two clients' devices with
// the same id, the younger one.
class LastRun {
 public:
  explicit LastRun(int device);
  ~LastRun();
  LastRun(const LastRun&) = delete;
  LastRun& operator=(const LastRun&) = delete;

  void Set(const ProgramInfo& program, RunCounters counters);
  // Something other than a run of a program.
  void Set(std::string what, RunCounters counters);

  struct Record {
    std::string program;
    RunCounters counters;
    std::vector<std::string> loops;
  };
  // Its program's name is empty if there was no run.
  Record Get() const;

 private:
  const int device_;
  mutable std::mutex mutex_;
  Record record_;
};

}  // namespace ipu

extern "C" {

// Receives a run: its program, cycles of the modelled machine, those in which
// it waited for other devices, bytes exchanged, and for each loop whose trip
// count was unknown the user's line and the iterations.
typedef void (*ipu_run_reader)(const char* program, double cycles,
                               double waiting_cycles, double exchange_bytes,
                               size_t num_loops, const char* const* loops,
                               const uint64_t* trips);

// Passes the last finished run of a device to `reader`, if there was one.
void ipu_read_last_run(int device, ipu_run_reader reader);

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_PJRT_LAST_RUN_H_
