#include "jaxlib/ipu/runtime/pjrt/device_timeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/device_plane.h"
#include "jaxlib/ipu/runtime/pjrt/run_steps.h"

namespace ipu {
namespace {

struct DeviceState {
  DevicePlane plane;
  int64_t free_ns;     // end of the last run, in modelled time
  int64_t steps_left;  // to expand
  uint64_t runs_not_expanded = 0;
  uint64_t runs_not_timed = 0;
};

// "loop at train.py:12"
std::string LoopName(const StepInfo& info) {
  if (info.file.empty()) return info.what;
  return info.what + " at " + info.file + ':' + std::to_string(info.line);
}

// Writes the steps of one run.
class Expansion {
 public:
  Expansion(const ProfiledProgram& program, const ProfilerOptions& options,
            int64_t begin_ns, double ns_per_cycle, DeviceState* device)
      : program_(program),
        options_(options),
        begin_ns_(begin_ns),
        ns_per_cycle_(ns_per_cycle),
        device_(*device) {}

  // Cycles before the first step.
  void Move(double cycles) {
    if (cycles > 0) Other("arguments change layout", cycles);
  }

  void Add(const RunBlock& block) {
    const auto count = static_cast<int64_t>(block.steps.size());
    if (count > device_.steps_left) {
      cut_ = true;
      return Other(std::to_string(count) + " steps not shown (ipu_max_steps)",
                   block.cycles);
    }
    device_.steps_left -= count;
    for (const RunStep& step : block.steps) Add(step);
  }

  bool cut() const { return cut_; }

 private:
  int64_t Now() const {
    return begin_ns_ + std::llround(cycles_ * ns_per_cycle_);
  }
  int64_t Pass(double cycles) {
    cycles_ += cycles;
    return Now();
  }

  void Other(const std::string& name, double cycles) {
    const int64_t begin = Now();
    device_.plane.AddOther(name, begin, Pass(cycles));
  }

  void Add(const RunStep& step) {
    switch (step.info->kind) {
      case StepInfo::Kind::kRepeat:
      case StepInfo::Kind::kWhile:
        return AddLoop(step);
      case StepInfo::Kind::kSwitch:
        return AddSwitch(step);
      default:
        return AddLeaf(*step.info);
    }
  }

  void AddLeaf(const StepInfo& info) {
    const int64_t begin = Now();
    const double before = cycles_;
    AddPhase("sync", info.sync_cycles);
    AddPhase(Moves(info.kind), info.exchange_cycles);
    AddPhase("compute", info.compute_cycles);
    // Steps share edges, however their phases are rounded.
    cycles_ = before;
    device_.plane.AddStep(program_, info, begin, Pass(info.cycles()));
  }

  static const char* Moves(StepInfo::Kind kind) {
    switch (kind) {
      case StepInfo::Kind::kCollective:
        return "links";
      case StepInfo::Kind::kStream:
      case StepInfo::Kind::kHost:
        return "host";
      default:
        return "exchange";
    }
  }

  void AddPhase(const char* name, double cycles) {
    const int64_t begin = Now();
    device_.plane.AddPhase(name, begin, Pass(cycles));
  }

  void AddLoop(const RunStep& step) {
    const bool tests = step.info->kind == StepInfo::Kind::kWhile;
    const int64_t begin = Now();
    const double end = cycles_ + step.cycles;
    const auto limit = static_cast<double>(options_.loop_iterations);
    const double most = std::min(std::floor(step.trips), limit);
    int64_t steps = tests;  // of an iteration
    for (const RunBlock& block : step.blocks) {
      steps += static_cast<int64_t>(block.steps.size());
    }
    double shown = 0;
    for (; shown < most && steps <= device_.steps_left; ++shown) {
      if (tests) AddTest(step);
      Add(step.blocks[tests ? 1 : 0]);
    }
    if (shown == step.trips) {
      if (tests) AddTest(step);
    } else {
      const double more = step.trips - shown;
      cut_ = true;
      Other(Rounded(more) + " more iterations of the " + LoopName(*step.info),
            end - cycles_);
    }
    cycles_ = end;
    device_.plane.AddControl(
        LoopName(*step.info) + ", " + Rounded(step.trips) + " iterations",
        begin, Now());
  }

  void AddTest(const RunStep& step) {
    Add(step.blocks[0]);
    AddLeaf(*step.info);
    --device_.steps_left;
  }

  void AddSwitch(const RunStep& step) {
    const int64_t begin = Now();
    const double end = cycles_ + step.cycles;
    const auto taken = std::find(step.shares.begin(), step.shares.end(), 1.0);
    if (taken == step.shares.end()) {
      Other(LoopName(*step.info) + ", mean of its runs", step.cycles);
    } else {
      AddLeaf(*step.info);
      Add(step.blocks[static_cast<size_t>(taken - step.shares.begin())]);
    }
    cycles_ = end;
    device_.plane.AddControl(LoopName(*step.info), begin, Now());
  }

  // Iterations of a loop within a loop may be a mean.
  static std::string Rounded(double count) {
    const auto whole = static_cast<int64_t>(std::llround(count));
    const bool exact = static_cast<double>(whole) == count;
    return (exact ? "" : "about ") + std::to_string(whole);
  }

  const ProfiledProgram& program_;
  const ProfilerOptions& options_;
  const int64_t begin_ns_;
  const double ns_per_cycle_;
  DeviceState& device_;
  double cycles_ = 0;
  bool cut_ = false;
};

void ListHostSteps(const std::vector<StepInfo>& steps,
                   std::vector<const StepInfo*>* list) {
  for (const StepInfo& step : steps) {
    if (step.kind == StepInfo::Kind::kHost) list->push_back(&step);
    for (const auto& block : step.blocks) ListHostSteps(block, list);
  }
}

class Timeline {
 public:
  Timeline(int64_t origin_ns, const ProfilerOptions& options)
      : origin_ns_(origin_ns), options_(options) {}

  Status Add(const std::vector<ProfiledRunPtr>& runs) {
    for (const ProfiledRunPtr& run : runs) {
      if (run->gang != 0) gangs_[run->gang].push_back(run->device);
    }
    for (const ProfiledRunPtr& run : runs) IPU_RETURN_IF_ERROR(Add(*run));
    return Status();
  }

  std::string Finish(uint64_t lost) {
    std::string space;
    for (auto& [id, device] : devices_) {
      std::string what;
      if (device.runs_not_expanded > 0) {
        what = std::to_string(device.runs_not_expanded) +
               " runs without all of their steps (ipu_max_steps=" +
               std::to_string(options_.max_steps) + ", ipu_loop_iterations=" +
               std::to_string(options_.loop_iterations) + ")";
      }
      if (device.runs_not_timed > 0) {
        what += (what.empty() ? "" : "; ") +
                std::to_string(device.runs_not_timed) +
                " runs with only the first of their waits for the host";
      }
      if (lost > 0) {
        what += (what.empty() ? "" : "; ") + std::to_string(lost) +
                " runs of all devices, after the first " +
                std::to_string(noted_);
      }
      if (!what.empty()) device.plane.Warn(what);
      device.plane.AppendTo(&space);
    }
    return space;
  }

 private:
  Status Add(const ProfiledRun& run) {
    ++noted_;
    StatusOr<const ProfiledProgram*> found = Find(*run.executable);
    if (!found.ok()) return found.status();
    const ProfiledProgram& program = **found;
    DeviceState& device = Device(run.device, run.machine);
    const int64_t begin = BeginOf(run);
    const double ns_per_cycle = 1e9 / static_cast<double>(run.machine.clock_hz);
    const int64_t end =
        begin + std::llround(run.counters.cycles * ns_per_cycle);
    device.free_ns = end;
    device.plane.AddProgram(program, begin, end);
    device.plane.AddModelRun(program, run.begin_ns, run.end_ns);
    for (const HostWait& wait : run.counters.waits) {
      device.plane.AddWait(*program.host_steps[wait.step], wait.begin_ns,
                           wait.end_ns);
    }
    device.runs_not_timed += !run.counters.times_host;
    Expansion expansion(program, options_, begin, ns_per_cycle, &device);
    expansion.Move(run.moving_cycles);
    expansion.Add(Resolve(program.steps, run.counters));
    device.runs_not_expanded += expansion.cut();
    return Status();
  }

  // When a run begins in modelled time: that of a gang when all of its devices
  // are free.
  int64_t BeginOf(const ProfiledRun& run) {
    if (run.gang == 0) {
      return std::max(run.begin_ns, Device(run.device, run.machine).free_ns);
    }
    const auto [found, is_first] = gang_begins_.try_emplace(run.gang, 0);
    if (is_first) {
      found->second = run.begin_ns;
      for (const int id : gangs_[run.gang]) {
        found->second =
            std::max(found->second, Device(id, run.machine).free_ns);
      }
    }
    return found->second;
  }

  DeviceState& Device(int id, const Machine& machine) {
    const auto found = devices_.find(id);
    if (found != devices_.end()) return found->second;
    DevicePlane plane(id, machine, origin_ns_, options_.xprof_ops);
    return devices_
        .emplace(id,
                 DeviceState{std::move(plane), origin_ns_, options_.max_steps})
        .first->second;
  }

  StatusOr<const ProfiledProgram*> Find(const Executable& executable) {
    const auto found = programs_.find(&executable);
    if (found != programs_.end()) return found->second;
    StatusOr<std::vector<StepInfo>> steps = executable.program().Steps();
    if (!steps.ok()) return steps.status();
    ProfiledProgram& program = owned_.emplace_back();
    program.name = executable.info().name;
    program.id = static_cast<int64_t>(owned_.size());
    program.steps = std::move(*steps);
    ListHostSteps(program.steps, &program.host_steps);
    programs_.emplace(&executable, &program);
    return static_cast<const ProfiledProgram*>(&program);
  }

  const int64_t origin_ns_;
  const ProfilerOptions& options_;
  std::map<int, DeviceState> devices_;
  std::deque<ProfiledProgram> owned_;
  std::unordered_map<const Executable*, const ProfiledProgram*> programs_;
  std::unordered_map<uint64_t, std::vector<int>> gangs_;
  std::unordered_map<uint64_t, int64_t> gang_begins_;
  uint64_t noted_ = 0;
};

}  // namespace

StatusOr<std::string> MakeTimeline(const std::vector<ProfiledRunPtr>& runs,
                                   int64_t origin_ns, uint64_t lost,
                                   const ProfilerOptions& options) {
  Timeline timeline(origin_ns, options);
  IPU_RETURN_IF_ERROR(timeline.Add(runs));
  return timeline.Finish(lost);
}

}  // namespace ipu
