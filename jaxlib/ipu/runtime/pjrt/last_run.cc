#include "jaxlib/ipu/runtime/pjrt/last_run.h"

#include <map>
#include <utility>

namespace ipu {
namespace {

std::mutex& RegistryMutex() {
  static std::mutex mutex;
  return mutex;
}

// By device id.
std::map<int, const LastRun*>& Registry() {
  static auto& registry = *new std::map<int, const LastRun*>;
  return registry;
}

}  // namespace

LastRun::LastRun(int device) : device_(device) {
  const std::lock_guard lock(RegistryMutex());
  Registry()[device] = this;
}

LastRun::~LastRun() {
  const std::lock_guard lock(RegistryMutex());
  const auto found = Registry().find(device_);
  if (found->second == this) Registry().erase(found);
}

void LastRun::Set(const ProgramInfo& program, RunCounters counters) {
  const std::lock_guard lock(mutex_);
  record_.program = program.name;
  record_.counters = std::move(counters);
  record_.loops = program.loops;
}

void LastRun::Set(std::string what, RunCounters counters) {
  const std::lock_guard lock(mutex_);
  record_ = {std::move(what), std::move(counters), {}};
}

LastRun::Record LastRun::Get() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

}  // namespace ipu

__attribute__((visibility("default"))) void ipu_read_last_run(
    int device, ipu_run_reader reader) {
  ipu::LastRun::Record run;
  {
    const std::lock_guard lock(ipu::RegistryMutex());
    const auto found = ipu::Registry().find(device);
    if (found == ipu::Registry().end()) return;
    run = found->second->Get();
  }
  if (run.program.empty()) return;
  std::vector<const char*> loops;
  for (const std::string& loop : run.loops) loops.push_back(loop.c_str());
  reader(run.program.c_str(), run.counters.cycles, run.counters.waiting_cycles,
         run.counters.exchange_bytes, loops.size(), loops.data(),
         run.counters.trips.data());
}
