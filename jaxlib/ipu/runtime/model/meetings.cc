#include "jaxlib/ipu/runtime/model/meetings.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ipu::model {
namespace {

// How often a device that waits looks for Ctrl-C.
constexpr std::chrono::milliseconds kSlice(100);

}  // namespace

Meetings::Meetings(std::vector<int64_t> devices, std::string program,
                   ProcessRunPtr run)
    : program_(std::move(program)),
      run_(std::move(run)),
      devices_(devices.size()) {
  for (uint32_t i = 0; i < devices.size(); ++i) {
    devices_[i].id = devices[i];
    if (IsOwn(i)) {
      ++running_;
    } else {
      devices_[i].state = State::kElsewhere;
    }
  }
}

bool Meetings::IsOwn(uint32_t partition) const {
  return run_ == nullptr || run_->ProcessOf(partition) == run_->process();
}

std::unique_ptr<Exchange> Meetings::Arrive(const Collective& collective,
                                           const Memory& memory, double cycles,
                                           ThreadPool& threads) {
  const std::span<const uint32_t> group = collective.GroupOf(memory.partition);
  std::unique_lock lock(mutex_);
  if (!status_.ok()) return nullptr;
  Device& device = devices_[memory.partition];
  device.state = State::kWaits;
  device.at = &collective;
  device.memory = memory;
  device.cycles = cycles;
  --running_;
  if (!IsComplete(collective, group)) {
    Stopped();
    return nullptr;
  }
  WaitForLatest(group);
  // Until the work is done nobody of the group goes on, but none waits in vain.
  std::vector<Memory> memories;
  memories.reserve(group.size());
  for (const uint32_t member : group) {
    if (devices_[member].state == State::kElsewhere) continue;
    ++running_;
    memories.push_back(devices_[member].memory);
    devices_[member].at = nullptr;
  }
  if (memories.size() < group.size()) {
    const uint64_t number = exchanges_[{group.begin(), group.end()}]++;
    lock.unlock();
    auto exchange =
        std::make_unique<Exchange>(collective, group, number, *run_, program_);
    const Status sent = Caught([&] { return exchange->Send(memories); });
    if (sent.ok()) return exchange;
    Complete(group, [&] { return sent; });
    return nullptr;
  }
  lock.unlock();
  Complete(group, [&] {
    std::vector<Member> members;
    members.reserve(memories.size());
    for (const Memory& own : memories) {
      members.push_back(collective.MemberOf(own));
    }
    return collective.Run(members, threads);
  });
  return nullptr;
}

bool Meetings::Finish(Exchange& exchange, std::chrono::milliseconds patience,
                      const InterruptWatch& watch, ThreadPool& threads) {
  StatusOr<bool> received = false;
  Status status = this->status();
  if (status.ok() && watch.Interrupted()) status = Interrupted();
  if (status.ok()) {
    status = Caught([&] {
      received = exchange.Receive(patience);
      return received.status();
    });
  }
  if (status.ok() && !*received) return false;
  Complete(exchange.group(), [&] {
    IPU_RETURN_IF_ERROR(status);
    return exchange.collective().Run(exchange.Members(), threads);
  });
  return true;
}

// Does the work of a group, whose devices then go on. Takes the lock.
void Meetings::Complete(std::span<const uint32_t> group,
                        const std::function<Status()>& work) {
  Status status = Caught(work);
  std::lock_guard lock(mutex_);
  if (!status.ok()) Fail(std::move(status));
  for (const uint32_t member : group) {
    if (devices_[member].state == State::kElsewhere) continue;
    devices_[member].state = State::kRuns;
    devices_[member].changed.notify_one();
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

double Meetings::WaitingCycles(uint32_t partition) const {
  std::lock_guard lock(mutex_);
  return devices_[partition].waited;
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
    return devices_[member].state == State::kElsewhere ||
           (devices_[member].state == State::kWaits &&
            devices_[member].at == &collective);
  });
}

// A group goes on together. What its devices have yet to count of the blocks
// that they are in is the same for all of them.
void Meetings::WaitForLatest(std::span<const uint32_t> group) {
  double latest = 0;
  for (const uint32_t member : group) {
    const Device& device = devices_[member];
    if (device.state == State::kElsewhere) continue;
    latest = std::max(latest, device.cycles + device.waited);
  }
  for (const uint32_t member : group) {
    devices_[member].waited = latest - devices_[member].cycles;
  }
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
  if (run_ != nullptr) run_->Fail(status_);
  for (Device& device : devices_) device.changed.notify_one();
}

Status Meetings::Mismatch() const {
  std::string message =
      "the devices that run program " + program_ +
      " together would wait for each other for ever, because their collectives "
      "do not match (in a loop or a branch that differs between devices?):";
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    if (device.state == State::kElsewhere) continue;
    message +=
        "\n  device " + std::to_string(device.id) +
        (device.state == State::kEnded ? " has ended"
                                       : " waits in " + device.at->text());
  }
  return Status(Code::kFailedPrecondition, std::move(message));
}

}  // namespace ipu::model
