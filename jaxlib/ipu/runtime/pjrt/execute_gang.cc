// Execute for a program of several partitions: a gang of calls, one on each of
// its devices.
//
// A gang runs on all of its devices or on none: everything is checked for all
// of them before anything is consumed. Its calls are queued in one critical
// section, so that the devices that two gangs share run them in the same order,
// and no gang waits for another that waits for it. Short gangs do not go
// through the queues: the calling thread runs all of their partitions in turn,
// if the devices are idle.
//
// Of a gang across processes each runs the calls of its own devices. It always
// goes through the queues, since it waits for the others. Whatever fails here
// fails there, too.
//
// All results are ready at once, when the last call has ended: an error of one
// is that of all.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/call.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/host_calls.h"
#include "jaxlib/ipu/runtime/pjrt/profiler.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

std::vector<int64_t> DeviceIds(const Executable& executable) {
  std::vector<int64_t> ids;
  ids.reserve(executable.all_devices().size());
  for (const PJRT_Device* device : executable.all_devices()) {
    ids.push_back(device->description.id);
  }
  return ids;
}

// Null if no other process takes part.
ProcessRunPtr BeginRun(const Executable& executable) {
  if (!executable.spans_processes()) return nullptr;
  Processes processes;
  for (const PJRT_Device* device : executable.all_devices()) {
    processes.of_partitions.push_back(device->description.process_index);
  }
  const PJRT_Device& device = *executable.device();
  processes.own = device.description.process_index;
  return device.channels->Begin(DeviceIds(executable), std::move(processes));
}

// Passes on an error, which fails the run in other processes.
Status Shared(Status status, const ProcessRunPtr& run) {
  if (!status.ok() && run != nullptr) run->Fail(status);
  return status;
}

std::unique_ptr<Gang> GangOf(const Executable& executable, ProcessRunPtr run) {
  return executable.program().MakeGang(DeviceIds(executable), std::move(run));
}

// Runs all partitions on this thread, which shares long work with the threads
// of the kernels.
Status TryRunHere(const Executable& executable, const std::vector<Call>& calls,
                  const ProcessRunPtr& run) {
  for (const Call& call : calls) IPU_RETURN_IF_ERROR(WaitForArguments(call));
  const size_t count = calls.size();
  std::vector<Pointers> pointers(count);
  const RunRecord record(Profiler::NewGang());
  std::vector<RunCounters> counters(count, record.Counters());
  std::vector<Share> shares;
  shares.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    IPU_RETURN_IF_ERROR(pointers[i].Find(calls[i]));
    shares.push_back(pointers[i].share(&counters[i]));
  }
  if (executable.info().uses_feeds) {
    return Unimplemented("program " + executable.info().name +
                         " uses feeds on several IPUs, so a host function that "
                         "one of them waits for cannot call it");
  }
  const HostCalls host_calls(executable, calls[0].submitter);
  const auto begin = std::chrono::steady_clock::now();
  IPU_RETURN_IF_ERROR(GangOf(executable, run)->RunAll(shares));
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  executable.Took(took.count() / static_cast<double>(count));
  for (size_t i = 0; i < count; ++i) {
    record.Finish(calls[i], std::move(counters[i]));
  }
  return Status();
}

Status RunHere(const Executable& executable, const std::vector<Call>& calls,
               const ProcessRunPtr& run) {
  return Shared(Caught([&] { return TryRunHere(executable, calls, run); }),
                run);
}

// A gang in the queues of its devices.
class QueuedGang {
 public:
  QueuedGang(ExecutablePtr executable, EventPtr done)
      : executable_(std::move(executable)),
        left_(executable_->devices().size()),
        done_(std::move(done)) {}
  virtual ~QueuedGang() = default;

  // A call's turn in its queue, which is held until this returns.
  virtual void Run(size_t number, Call call) = 0;
  // Instead of Run; does not block.
  virtual void Cancel(size_t number, const Status& why) = 0;

 protected:
  const Executable& executable() const { return *executable_; }

  // Counts a call and its error. Returns true for the last one.
  bool IsLast(Status status) {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    return --left_ == 0;
  }
  // The first error. Requires that all calls have been counted.
  const Status& status() const { return status_; }
  Event& done() { return *done_; }

 private:
  const ExecutablePtr executable_;
  std::mutex mutex_;
  Status status_;
  size_t left_;
  const EventPtr done_;
};

// Without host functions and feeds, the thread of the device whose turn comes
// last runs all partitions, and the other queues wait for it: meetings in
// collectives then take no time.
class GangInTurn : public QueuedGang {
 public:
  GangInTurn(const ExecutablePtr& executable, EventPtr done, ProcessRunPtr run)
      : QueuedGang(executable, std::move(done)),
        run_(std::move(run)),
        calls_(executable->devices().size()) {}

  void Run(size_t number, Call call) override {
    Status status = WaitForArguments(call);
    calls_[number] = std::move(call);
    if (IsLast(std::move(status))) {
      RunAll();
    } else {
      done().Wait();
    }
  }
  void Cancel(size_t, const Status& why) override {
    if (IsLast(why)) RunAll();
  }

 private:
  void RunAll() {
    Status end = Shared(status(), run_);
    if (end.ok()) end = RunHere(executable(), calls_, run_);
    // Release the memory before anyone can act on the event.
    calls_.clear();
    done().Set(std::move(end));
  }

  const ProcessRunPtr run_;
  std::vector<Call> calls_;
};

// With host functions, which may wait for those of other devices, or feeds,
// each partition runs on the thread of its device.
class GangOfThreads : public QueuedGang {
 public:
  GangOfThreads(const ExecutablePtr& executable, EventPtr done,
                ProcessRunPtr run)
      : QueuedGang(executable, std::move(done)),
        gang_(GangOf(*executable, std::move(run))) {}

  void Run(size_t number, Call call) override {
    Status status =
        Caught([&] { return TryRun(executable().partitions()[number], call); });
    call = Call();
    Cancel(number, status);
  }
  void Cancel(size_t number, const Status& why) override {
    gang_->Cancel(executable().partitions()[number],
                  why);  // has no effect after a run
    if (IsLast(why)) done().Set(status());
  }

 private:
  Status TryRun(uint32_t partition, const Call& call) {
    IPU_RETURN_IF_ERROR(WaitForArguments(call));
    Pointers pointers;
    IPU_RETURN_IF_ERROR(pointers.Find(call));
    const HostCalls calls(executable(), call.submitter);
    const DeviceFeeds::Use feeds(call.device->feeds);
    const RunRecord record(number_);
    RunCounters counters = record.Counters();
    IPU_RETURN_IF_ERROR(gang_->Run(partition, pointers.share(&counters)));
    record.Finish(call, std::move(counters));
    return Status();
  }

  const std::unique_ptr<Gang> gang_;
  const uint64_t number_ = Profiler::NewGang();
};

// One call of a gang, in the queue of its device.
class GangTask : public Task {
 public:
  GangTask(std::shared_ptr<QueuedGang> gang, size_t number, Call call,
           bool may_wait)
      : gang_(std::move(gang)),
        number_(number),
        call_(std::move(call)),
        may_wait_(may_wait),
        waiting_(call_) {}

  void Run() override {
    gang_->Run(number_, std::move(call_));
    waiting_.Leave();
  }
  void Cancel(const Status& why) override {
    call_ = Call();
    gang_->Cancel(number_, why);
    waiting_.Leave();
  }

  bool MayWait() const override { return may_wait_; }
  bool IsReady() const override {
    return waiting_.IsItsTurn() &&
           std::all_of(call_.pending.begin(), call_.pending.end(),
                       [](const EventPtr& event) { return event->IsReady(); });
  }
  bool KeepsOrder() const override { return true; }

 private:
  const std::shared_ptr<QueuedGang> gang_;
  const size_t number_;
  Call call_;
  const bool may_wait_;
  Waiting waiting_;
};

// Whether any of the calls may have to wait for a host function or a feed, or
// for work of a device other than its own.
bool MayWait(const Executable& executable, const std::vector<Call>& calls) {
  return executable.info().may_wait() ||
         std::any_of(calls.begin(), calls.end(), [](const Call& call) {
           return call.device->queue.MayReorder() ||
                  std::any_of(call.pending.begin(), call.pending.end(),
                              [](const EventPtr& e) { return e->elsewhere; });
         });
}

bool IsShort(const Executable& executable, const std::vector<Call>& calls) {
  return executable.is_short() && !executable.info().may_wait() &&
         !executable.spans_processes() &&
         std::all_of(calls.begin(), calls.end(), [](const Call& call) {
           return call.pending.empty() && call.device->queue.IsIdle();
         });
}

// Runs or queues calls whose devices are locked. The returned event signals
// their completion.
EventPtr Dispatch(const ExecutablePtr& executable, std::vector<Call> calls,
                  const ProcessRunPtr& run) {
  if (IsShort(*executable, calls)) {
    Status status = RunHere(*executable, calls, run);
    if (status.ok()) return nullptr;
    return std::make_shared<Event>(std::move(status));
  }
  auto done = std::make_shared<Event>();
  done->elsewhere = executable->info().may_wait();
  std::shared_ptr<QueuedGang> gang;
  if (executable->info().may_wait()) {
    gang = std::make_shared<GangOfThreads>(executable, done, run);
  } else {
    gang = std::make_shared<GangInTurn>(executable, done, run);
  }
  const bool may_wait = MayWait(*executable, calls);
  // Nothing may fail between the first and the last of these.
  std::vector<std::unique_ptr<Task>> tasks;
  for (size_t i = 0; i < calls.size(); ++i) {
    tasks.push_back(
        std::make_unique<GangTask>(gang, i, std::move(calls[i]), may_wait));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    executable->devices()[i]->queue.Push(std::move(tasks[i]));
  }
  return done;
}

// The dispatch locks of devices, taken in ascending order of their ids.
std::vector<std::unique_lock<std::mutex>> Lock(
    std::vector<PJRT_Device*> devices) {
  std::sort(devices.begin(), devices.end(), [](const auto* a, const auto* b) {
    return a->description.id < b->description.id;
  });
  std::vector<std::unique_lock<std::mutex>> locks;
  locks.reserve(devices.size());
  for (PJRT_Device* device : devices) locks.emplace_back(device->dispatch);
  return locks;
}

}  // namespace

PJRT_Error* ExecuteGang(const ExecutablePtr& executable,
                        PJRT_LoadedExecutable_Execute_Args* args) {
  const std::vector<PJRT_Device*>& devices = executable->devices();
  const size_t count = devices.size();
  IPU_PJRT_RETURN_IF_ERROR(CheckNotForked(devices[0]->fork_generation));
  if (args->num_devices != count || args->execute_device != nullptr) {
    return MakeError(InvalidArgument(
        "program " + executable->info().name + " was compiled for " +
        std::to_string(count) + " IPUs together; the call names " +
        std::to_string(args->execute_device ? 1 : args->num_devices)));
  }
  const std::vector<uint32_t> donated =
      DonatedArguments(*executable, args->options);
  const auto arguments_of = [&](size_t i) {
    return std::span<PJRT_Buffer* const>(
        args->num_args == 0 ? nullptr : args->argument_lists[i],
        args->num_args);
  };
  std::vector<Call> calls;
  for (PJRT_Device* device : devices) {
    calls.push_back({.executable = executable, .device = device});
    calls.back().submitter = HostCalls::Current();
  }
  const bool nested =
      std::any_of(devices.begin(), devices.end(), HostCalls::WaitFor);
  if (!nested) {
    for (PJRT_Device* device : devices) device->queue.WaitForRoom();
  }

  std::vector<std::vector<StoragePtr>> results(count);
  std::vector<Sram::Room> rooms(count);
  std::deque<WorkQueue::Beside> beside;
  EventPtr done;
  {
    auto locks = Lock(devices);
    if (nested) {
      for (PJRT_Device* device : devices) beside.emplace_back(device->queue);
    }
    const ProcessRunPtr run = BeginRun(*executable);
    Status poison;
    for (size_t i = 0; i < count; ++i) {
      IPU_PJRT_RETURN_IF_ERROR(Shared(
          TakeArguments(arguments_of(i), donated, &calls[i], &poison), run));
    }
    if (poison.ok()) {
      std::vector<SramClaim> claims;
      claims.reserve(count);
      for (size_t i = 0; i < count && poison.ok(); ++i) {
        claims.emplace_back(arguments_of(i), donated, calls[i]);
        poison = claims.back().Reserve(&rooms[i]);
      }
      if (poison.ok()) {
        for (size_t i = 0; i < count; ++i) claims[i].Commit(&calls[i]);
      } else {
        // Gives back what was reserved.
        rooms = std::vector<Sram::Room>(count);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const bool in_order = !devices[i]->queue.MayReorder();
      GiveResultsMemory(arguments_of(i),
                        poison.ok() ? donated : std::vector<uint32_t>(),
                        in_order, &calls[i]);
      results[i] = calls[i].results;
    }
    if (!poison.ok()) {
      done = std::make_shared<Event>(Shared(std::move(poison), run));
    } else if (nested) {
      locks.clear();  // the program may itself call host functions
      Status status = RunHere(*executable, calls, run);
      if (!status.ok()) done = std::make_shared<Event>(std::move(status));
    } else {
      done = Dispatch(executable, std::move(calls), run);
    }
  }
  size_t made = 0;
  try {
    for (; made < count; ++made) {
      MakeResults(*executable, devices[made], std::move(results[made]), done,
                  &rooms[made], args->output_lists[made]);
    }
  } catch (...) {
    const size_t each = executable->info().results.size();
    while (made > 0) {
      --made;
      for (size_t j = 0; j < each; ++j) delete args->output_lists[made][j];
    }
    throw;
  }
  if (args->device_complete_events != nullptr) {
    for (size_t i = 0; i < count; ++i) {
      args->device_complete_events[i] = MakeEvent(done);
    }
  }
  return nullptr;
}

}  // namespace ipu
