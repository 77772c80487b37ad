#include "jaxlib/ipu/runtime/pjrt/device_plane.h"

#include <string_view>

namespace ipu {
namespace {

// In the order in which viewers show them.
enum Line : size_t {
  kPrograms,
  kControl,
  kOperations,
  kSource,
  kPhases,
  kStreams,
  kModelRun,
  kHost,
};
constexpr const char* kLines[] = {
    "Programs (modelled time)",   "Control flow (modelled time)",
    "Operations (modelled time)", "Source lines (modelled time)",
    "BSP phases (modelled time)", "Host streams (modelled time)",
    "Model run (wall time)",      "Host functions and feeds (wall time)",
};

enum XprofLine : size_t { kSteps, kModules, kOps };
constexpr const char* kXprofLines[] = {"Steps", "XLA Modules", "XLA Ops"};

// Multiply-adds of two f16 vectors by the matrix unit of a tile: 250 TFLOP/s of
// 1,472 tiles at 1.33 GHz (Graphcore's data sheet of the Mk2 IPU).
constexpr double kFlopsPerCycle = 128;

std::string Source(const StepInfo& step) {
  if (step.file.empty()) return "";
  return step.file + ':' + std::to_string(step.line);
}

std::string_view Operation(const StepInfo& step) {
  std::string_view operation = step.operation;
  for (std::string_view dialect : {"stablehlo.", "chlo."}) {
    if (operation.starts_with(dialect)) operation.remove_prefix(dialect.size());
  }
  return operation.empty() ? std::string_view(step.what) : operation;
}

std::string NameOf(const StepInfo& step) {
  std::string name(Operation(step));
  const bool plain = step.kind == StepInfo::Kind::kCompute ||
                     step.kind == StepInfo::Kind::kCollective ||
                     name == step.what;
  return plain ? name : step.what + ": " + name;
}

// What each event of a step repeats.
XPlane::Stats Each(const StepInfo& step) {
  return {
      {"tf_op", step.name + ':'},
      {"source", Source(step)},
      {"cycles", step.cycles()},
      {"flops", static_cast<int64_t>(step.flops)},
      {"exchange_bytes", static_cast<int64_t>(step.exchange_bytes)},
  };
}

XPlane::Stats StatsOf(const ProfiledProgram& program, const StepInfo& step) {
  const auto flops = static_cast<int64_t>(step.flops);
  return {
      {"hlo_category", step.what},
      {"tf_op", step.name + ':'},
      {"source", Source(step)},
      {"flops", flops},
      {"model_flops", flops},
      {"bytes_accessed", static_cast<int64_t>(step.exchange_bytes)},
      {"program_id", program.id},
      {"compute_cycles", step.compute_cycles},
      {"exchange_cycles", step.exchange_cycles},
      {"sync_cycles", step.sync_cycles},
  };
}

XPlane::Stats StatsOf(const Machine& machine) {
  const auto tiles = static_cast<double>(machine.num_tiles);
  const auto clock = static_cast<double>(machine.clock_hz);
  return {
      {"device_type_string", "IPU " + machine.version + " (model)"},
      {"clock_rate", machine.clock_hz},
      {"num_tiles", machine.num_tiles},
      {"peak_teraflops_per_second", kFlopsPerCycle * tiles * clock * 1e-12},
  };
}

}  // namespace

DevicePlane::DevicePlane(int device, const Machine& machine, int64_t origin_ns,
                         bool xprof_ops)
    : device_(device),
      plane_(
          "/device:CUSTOM:IPU:" + std::to_string(device) + " (modelled time)",
          origin_ns) {
  for (const char* line : kLines) plane_.AddLine(line);
  plane_.AddStats(StatsOf(machine));
  if (!xprof_ops) return;
  // The only name of which XProf's pages of operations take notice.
  xprof_.emplace("/device:TPU:" + std::to_string(device), origin_ns);
  for (const char* line : kXprofLines) xprof_->AddLine(line);
  xprof_->AddStats(StatsOf(machine));
}

uint64_t DevicePlane::Named(const std::string& name) {
  const auto [found, is_new] = named_.try_emplace(name, 0);
  if (is_new) found->second = plane_.AddKind(name, "", {});
  return found->second;
}

void DevicePlane::AddProgram(const ProfiledProgram& program, int64_t begin,
                             int64_t end) {
  plane_.AddEvent(kPrograms, Named(program.name), begin, end);
  if (!xprof_) return;
  const std::string number = std::to_string(runs_++);
  xprof_->AddEvent(kSteps, xprof_->AddKind(number, "", {}), begin, end);
  const std::string name =
      program.name + '(' + std::to_string(program.id) + ')';
  const uint64_t kind = xprof_->AddKind(name, "", {{"program_id", program.id}});
  xprof_->AddEvent(kModules, kind, begin, end);
}

void DevicePlane::AddModelRun(const ProfiledProgram& program, int64_t begin,
                              int64_t end) {
  plane_.AddEvent(kModelRun, Named(program.name), begin, end);
}

void DevicePlane::AddWait(const StepInfo& step, int64_t begin, int64_t end) {
  plane_.AddEvent(kHost, Named(NameOf(step)), begin, end);
}

void DevicePlane::AddControl(const std::string& name, int64_t begin,
                             int64_t end) {
  plane_.AddEvent(kControl, Named(name), begin, end);
}

void DevicePlane::AddOther(const std::string& name, int64_t begin,
                           int64_t end) {
  plane_.AddEvent(kOperations, Named(name), begin, end);
}

void DevicePlane::AddPhase(const char* name, int64_t begin, int64_t end) {
  plane_.AddEvent(kPhases, Named(name), begin, end);
}

void DevicePlane::AddStep(const ProfiledProgram& program, const StepInfo& step,
                          int64_t begin, int64_t end) {
  if (end <= begin) return;
  const auto [found, is_new] = kinds_.try_emplace(&step, 0);
  if (is_new) {
    found->second =
        plane_.AddKind(NameOf(step), "", StatsOf(program, step), Each(step));
  }
  plane_.AddEvent(kOperations, found->second, begin, end);
  if (const std::string source = Source(step); !source.empty()) {
    plane_.AddEvent(kSource, Named(source), begin, end);
  }
  if (step.kind == StepInfo::Kind::kStream ||
      step.kind == StepInfo::Kind::kHost) {
    plane_.AddEvent(kStreams, found->second, begin, end);
  }
  if (!xprof_) return;
  const auto [kind, is_first] = xprof_kinds_.try_emplace(&step, 0);
  if (is_first) {
    XPlane::Stats stats = StatsOf(program, step);
    const auto number = static_cast<int64_t>(xprof_kinds_.size());
    stats.emplace_back("symbol_id", number);
    // As an instruction of HLO.
    const std::string operation(Operation(step));
    const std::string display = operation + '.' + std::to_string(number);
    kind->second = xprof_->AddKind('%' + display + " = " + operation + "()",
                                   display, stats);
  }
  xprof_->AddEvent(kOps, kind->second, begin, end);
}

void DevicePlane::Warn(const std::string& what) {
  plane_.AddStats({{"not_shown", what}});
  if (xprof_) xprof_->AddStats({{"not_shown", what}});
}

void DevicePlane::AppendTo(std::string* space) const {
  // Numbers that no plane of the host has.
  plane_.AppendTo(1000 + device_, space);
  if (xprof_) xprof_->AppendTo(2000 + device_, space);
}

}  // namespace ipu
