#include "jaxlib/ipu/runtime/model/meetings.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ipu::model {
namespace {

// How often a device that waits looks for Ctrl-C.
constexpr std::chrono::milliseconds kSlice(100);

}  // namespace

Meetings::Meetings(std::vector<int64_t> devices, std::string program)
    : program_(std::move(program)),
      devices_(devices.size()),
      running_(devices.size()) {
  for (size_t i = 0; i < devices.size(); ++i) devices_[i].id = devices[i];
}

void Meetings::Arrive(const Collective& collective, const Memory& memory,
                      ThreadPool& threads) {
  const std::span<const uint32_t> group = collective.GroupOf(memory.partition);
  std::unique_lock lock(mutex_);
  if (!status_.ok()) return;
  Device& device = devices_[memory.partition];
  device.state = State::kWaits;
  device.at = &collective;
  device.memory = memory;
  --running_;
  if (!IsComplete(collective, group)) return Stopped();
  // Until the work is done nobody of the group goes on, but none waits in vain.
  running_ += group.size();
  std::vector<Memory> memories;
  memories.reserve(group.size());
  for (const uint32_t member : group) {
    memories.push_back(devices_[member].memory);
    devices_[member].at = nullptr;
  }
  lock.unlock();
  Status status = Caught([&] { return collective.Run(memories, threads); });
  lock.lock();
  if (!status.ok()) Fail(std::move(status));
  for (const uint32_t member : group) {
    devices_[member].state = State::kRuns;
    if (member != memory.partition) devices_[member].changed.notify_one();
  }
}

Status Meetings::Await(uint32_t partition, const InterruptWatch& watch) {
  std::unique_lock lock(mutex_);
  Device& device = devices_[partition];
  const auto over = [&] {
    // While its group's work is done, its memory is in use.
    const bool in_use = device.state == State::kWaits && device.at == nullptr;
    return device.state != State::kWaits || (!status_.ok() && !in_use);
  };
  while (!device.changed.wait_for(lock, kSlice, over)) {
    if (watch.Interrupted()) Fail(Interrupted());
  }
  return status_;
}

bool Meetings::Runs(uint32_t partition) const {
  std::lock_guard lock(mutex_);
  return devices_[partition].state == State::kRuns;
}

void Meetings::End(uint32_t partition, const Status& status) {
  std::lock_guard lock(mutex_);
  Device& device = devices_[partition];
  if (device.state == State::kEnded) return;
  if (device.state == State::kRuns) --running_;
  device.state = State::kEnded;
  if (!status.ok()) return Fail(status);
  Stopped();
}

Status Meetings::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

bool Meetings::IsComplete(const Collective& collective,
                          std::span<const uint32_t> group) const {
  return std::all_of(group.begin(), group.end(), [&](uint32_t member) {
    return devices_[member].state == State::kWaits &&
           devices_[member].at == &collective;
  });
}

// Fails if nobody is left to go on and some wait.
void Meetings::Stopped() {
  if (running_ > 0 || !status_.ok()) return;
  if (std::any_of(devices_.begin(), devices_.end(),
                  [](const Device& d) { return d.state == State::kWaits; })) {
    Fail(Mismatch());
  }
}

void Meetings::Fail(Status status) {
  if (!status_.ok()) return;
  status_ = std::move(status);
  for (Device& device : devices_) device.changed.notify_one();
}

Status Meetings::Mismatch() const {
  std::string message =
      "the devices that run program " + program_ +
      " together would wait for each other for ever, because their collectives "
      "do not match (in a loop or a branch that differs between devices?):";
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    message +=
        "\n  device " + std::to_string(device.id) +
        (device.state == State::kEnded ? " has ended"
                                       : " waits in " + device.at->text());
  }
  return Status(Code::kFailedPrecondition, std::move(message));
}

}  // namespace ipu::model
