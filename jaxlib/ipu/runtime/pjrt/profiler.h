// Notes what runs on IPUs while somebody profiles. Off, it costs a run one test
// of an atomic.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_PROFILER_H_
#define JAXLIB_IPU_RUNTIME_PJRT_PROFILER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// A run of a program on one device.
struct ProfiledRun {
  ExecutablePtr executable;
  int device = 0;  // its id
  Machine machine;
  int64_t begin_ns = 0;  // Unix time
  int64_t end_ns = 0;
  uint64_t gang = 0;  // that of the runs that belong together; 0: none
  // Cycles of arguments that moved first, which those of `counters` include.
  double moving_cycles = 0;
  RunCounters counters;
};

using ProfiledRunPtr = std::shared_ptr<const ProfiledRun>;

struct ProfilerOptions {
  bool xprof_ops = false;  // a second plane for XProf's pages of operations
  int64_t max_steps = 200'000;  // expanded, of each device
  int64_t loop_iterations = 8;  // expanded, of each loop
};

// Thread-safe.
class ProfilerSession {
 public:
  explicit ProfilerSession(ProfilerOptions options) : options_(options) {}
  ~ProfilerSession() { Stop(); }
  ProfilerSession(const ProfilerSession&) = delete;
  ProfilerSession& operator=(const ProfilerSession&) = delete;

  void Start();
  void Stop();
  // What ran between Start and Stop: a serialised XSpace, with planes for each
  // device that ran something.
  StatusOr<std::string> Collect() const;

 private:
  friend class Profiler;

  const ProfilerOptions options_;
  mutable std::mutex mutex_;
  bool started_ = false;
  int64_t begin_ns_ = 0;
  std::vector<ProfiledRunPtr> runs_;
  size_t num_waits_ = 0;  // of all runs
  uint64_t lost_ = 0;
};

// All sessions of the process.
class Profiler {
 public:
  // The time at which a run begins; 0 if nobody profiles.
  static int64_t Begin();
  static uint64_t NewGang();
  static void Add(ProfiledRun run);

 private:
  friend class ProfilerSession;
  static std::atomic<int> active_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_PROFILER_H_
