// PJRT_LoadedExecutable_Execute: one call of a program on its device.
//
// A call runs at once on this thread if the program is short and the device is
// idle, otherwise in the device's queue. A program that calls host functions
// runs in the queue, since functions of several devices may wait for each
// other; so does one that uses feeds, since its caller may have to fill them.
// One that prints (with jax.debug.print or jax.debug.callback) has run when its
// call returns, as in JAX on CPU, if its arguments are ready: the queue lends
// the device to the calling thread, so that a function may take a lock that its
// caller holds. Calls made by a host function run at once, because their device
// waits for the function to return (host_calls.h). Calls of other threads, for
// which it may wait as well, run when it takes long (work_queue.h).
//
// Failures, including running out of SRAM (sram.h), poison the results, whether
// they happen now or later, so that they surface where the user waits: in the
// call itself if the calling thread ran the program.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/call.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/host_calls.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

Status RunProgram(const Call& call) {
  Pointers pointers;
  IPU_RETURN_IF_ERROR(pointers.Find(call));
  const HostCalls calls(*call.executable, call.submitter);
  const DeviceFeeds::Use feeds(call.device->feeds);
  const RunRecord record;
  RunCounters counters = record.Counters();
  const Share share = pointers.share(&counters);
  const auto begin = std::chrono::steady_clock::now();
  Status status = call.executable->program().Run(share.arguments, share.results,
                                                 share.counters);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  call.executable->Took(took.count());
  if (status.ok()) record.Finish(call, std::move(counters));
  return status;
}

class CallTask : public Task {
 public:
  CallTask(Call call, EventPtr done)
      : call_(std::move(call)),
        done_(std::move(done)),
        may_wait_(call_.executable->info().may_wait() ||
                  std::any_of(
                      call_.pending.begin(), call_.pending.end(),
                      [](const EventPtr& event) { return event->elsewhere; })),
        waiting_(call_) {}

  void Run() override {
    Status status = WaitForArguments(call_);
    if (status.ok()) status = Caught([this] { return RunProgram(call_); });
    // Release the memory before anyone can act on the event.
    call_ = Call();
    Finish(std::move(status));
  }
  void Cancel(const Status& why) override { Finish(why); }

  bool MayWait() const override { return may_wait_; }
  bool IsReady() const override {
    return waiting_.IsItsTurn() &&
           std::all_of(call_.pending.begin(), call_.pending.end(),
                       [](const EventPtr& event) { return event->IsReady(); });
  }

 private:
  void Finish(Status status) {
    waiting_.Leave();
    done_->Set(std::move(status));
  }

  Call call_;
  EventPtr done_;
  const bool may_wait_;
  Waiting waiting_;
};

// Holds a device's queue while another thread uses the device.
class LoanTask : public Task {
 public:
  LoanTask(EventPtr begin, EventPtr end)
      : begin_(std::move(begin)), end_(std::move(end)) {}

  void Run() override {
    begin_->Set(Status());
    end_->Wait();
  }
  void Cancel(const Status& why) override { begin_->Set(why); }
  bool MayWait() const override { return true; }

 private:
  const EventPtr begin_;
  const EventPtr end_;
};

// The calling thread's turn on a device, once all that was queued before has
// run. Ends with this object.
class Loan {
 public:
  explicit Loan(WorkQueue& queue) {
    queue.Push(std::make_unique<LoanTask>(begin_, end_));
  }
  ~Loan() { end_->Set(Status()); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  // Blocks. An error if the queue is shutting down.
  const Status& Await() const { return begin_->Wait(); }

 private:
  const EventPtr begin_ = std::make_shared<Event>();
  const EventPtr end_ = std::make_shared<Event>();
};

// Runs a call on this thread, whose device is waiting for it.
EventPtr RunHere(Call call, Status status) {
  if (status.ok()) status = WaitForArguments(call);
  if (status.ok()) status = Caught([&] { return RunProgram(call); });
  return status.ok() ? nullptr : std::make_shared<Event>(std::move(status));
}

// Whether the calling thread waits for a call and runs it, which must not delay
// it for host functions: they may wait for what the caller does next.
bool RunsOnCaller(const Call& call) {
  return call.executable->info().caller_waits && call.pending.empty() &&
         call.device->host_programs == 0 && HostCalls::Current() == nullptr;
}

// Runs or queues `call`. The returned event signals its completion.
EventPtr Dispatch(Call call, const Status& poison) {
  if (!poison.ok()) return std::make_shared<Event>(poison);
  WorkQueue& queue = call.device->queue;
  if (call.executable->is_short() && !call.executable->info().may_wait() &&
      call.pending.empty() && queue.IsIdle()) {
    Status status = Caught([&] { return RunProgram(call); });
    if (status.ok()) return nullptr;
    return std::make_shared<Event>(std::move(status));
  }
  auto done = std::make_shared<Event>();
  queue.Push(std::make_unique<CallTask>(std::move(call), done));
  return done;
}

PJRT_Error* ExecuteOne(const ExecutablePtr& executable,
                       PJRT_LoadedExecutable_Execute_Args* args) {
  PJRT_Device* device = executable->device();
  IPU_PJRT_RETURN_IF_ERROR(CheckNotForked(device->fork_generation));
  if (args->num_devices != 1 ||
      (args->execute_device != nullptr && args->execute_device != device)) {
    return MakeError(Unimplemented("program " + executable->info().name +
                                   " was compiled for " +
                                   device->description.text +
                                   " alone and cannot run on another device "
                                   "or on several (the call names " +
                                   std::to_string(args->num_devices) + ")"));
  }
  const std::span<PJRT_Buffer* const> arguments(
      args->num_args == 0 ? nullptr : args->argument_lists[0], args->num_args);
  const std::vector<uint32_t> donated =
      DonatedArguments(*executable, args->options);

  Call call{.executable = executable, .device = device};
  std::vector<StoragePtr> results;
  Sram::Room room;
  EventPtr done;
  Status poison;
  const bool nested = HostCalls::WaitFor(device);
  std::optional<WorkQueue::Beside> beside;
  if (!nested) device->queue.WaitForRoom();
  call.submitter = HostCalls::Current();
  {
    std::unique_lock lock(device->dispatch);
    if (nested) beside.emplace(device->queue);
    IPU_PJRT_RETURN_IF_ERROR(TakeArguments(arguments, donated, &call, &poison));
    const bool calculable = poison.ok();
    if (calculable) {
      poison = SramClaim(arguments, donated, call).Admit(&call, &room);
    }
    // A call that is refused for lack of SRAM consumes nothing.
    const bool refused = calculable && !poison.ok();
    GiveResultsMemory(arguments,
                      refused ? std::span<const uint32_t>() : donated,
                      /*in_order=*/!device->queue.MayReorder(), &call);
    results = call.results;
    if (nested) {
      lock.unlock();  // the program may itself call host functions
      done = RunHere(std::move(call), std::move(poison));
    } else if (poison.ok() && RunsOnCaller(call)) {
      const Loan loan(device->queue);
      lock.unlock();
      done = RunHere(std::move(call), loan.Await());
      // The caller has waited, so it learns now what a function raised.
      if (done != nullptr) return MakeError(done->status());
    } else {
      done = Dispatch(std::move(call), poison);
    }
  }
  MakeResults(*executable, device, std::move(results), done, &room,
              args->output_lists[0]);
  if (args->device_complete_events != nullptr) {
    args->device_complete_events[0] = MakeEvent(std::move(done));
  }
  return nullptr;
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  // Keeps the executable alive until the results are created.
  const ExecutablePtr executable = args->executable->Get();
  if (executable == nullptr) {
    return MakeError(InvalidArgument("the executable has been deleted"));
  }
  return executable->info().num_partitions == 1 ? ExecuteOne(executable, args)
                                                : ExecuteGang(executable, args);
}

}  // namespace

void AddExecuteFunctions(PJRT_Api* api) {
  api->PJRT_LoadedExecutable_Execute = kGuarded<Execute>;
}

}  // namespace ipu
