// PJRT_LoadedExecutable_Execute: one call of a program on its device.
//
// A call takes its arguments' storage, allocates that of its results (or
// reuses a donated argument's where the program allows it) and runs: at once on
// this thread if the program is short and the device is idle, otherwise in the
// device's queue. A program that calls host functions runs in the queue, since
// functions of several devices may wait for each other; so does one that uses
// feeds, since its caller may have to fill them. One that prints (with
// jax.debug.print or jax.debug.callback) has run when its call returns, as in
// JAX on CPU, if its arguments are ready: the queue lends the device to the
// calling thread, so that a function may take a lock that its caller holds.
// Calls made by a host function run at once, because their device waits for the
// function to return (host_calls.h). Calls of other threads, for which it may
// wait as well, run when it takes long (work_queue.h).
//
// Failures, including running out of SRAM (sram.h), poison the results, whether
// they happen now or later, so that they surface where the user waits: in the
// call itself if the calling thread ran the program.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/array_layouts.h"
#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/host_calls.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

// One call in progress, with everything it keeps alive.
struct Call {
  ExecutablePtr executable;
  std::vector<StoragePtr> arguments;
  std::vector<StoragePtr> results;
  std::vector<EventPtr> pending;  // arguments that are not ready yet
  HostCallPtr submitter;
  // Of the exchanges that move arguments first (array_layouts.h).
  double moving_cycles = 0;
  double moving_bytes = 0;
};

// Logs the cycles of a run, with loops counted at their actual trip counts.
void LogCycles(const Executable& executable, const Machine& machine,
               const RunCounters& counters) {
  const double hertz = static_cast<double>(machine.clock_hz);
  std::fprintf(stderr, "%s: %s took %.0f cycles (%.3f us at %.2f GHz)\n",
               executable.device()->description.text.c_str(),
               executable.info().name.c_str(), counters.cycles,
               counters.cycles / hertz * 1e6, hertz / 1e9);
}

Status RunProgram(const Call& call) {
  std::vector<const void*> arguments;
  std::vector<void*> results;
  arguments.reserve(call.arguments.size());
  results.reserve(call.results.size());
  const auto none = [&call](const char* what, const Storage& storage) {
    return ResourceExhausted(std::string("out of host memory for ") + what +
                             " of " + std::to_string(storage.bytes()) +
                             " bytes of program " +
                             call.executable->info().name);
  };
  for (const StoragePtr& storage : call.arguments) {
    arguments.push_back(storage->data());
    if (arguments.back() == nullptr) return none("an argument", *storage);
  }
  for (const StoragePtr& storage : call.results) {
    results.push_back(storage->data());
    if (results.back() == nullptr) return none("a result", *storage);
  }
  const HostCalls calls(*call.executable, call.submitter);
  const DeviceFeeds::Use feeds(call.executable->device()->feeds);
  RunCounters counters;
  const auto begin = std::chrono::steady_clock::now();
  Status status = call.executable->program().Run(arguments, results, &counters);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  counters.cycles += call.moving_cycles;
  counters.exchange_bytes += call.moving_bytes;
  call.executable->Took(took.count());
  const Machine& machine = call.executable->device()->machine;
  if (machine.logs_cycles && status.ok()) [[unlikely]] {
    LogCycles(*call.executable, machine, counters);
  }
  if (status.ok()) {
    call.executable->device()->last_run.Set(call.executable->info(),
                                            std::move(counters));
  }
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
                      [](const EventPtr& event) { return event->elsewhere; })) {
    const ProgramInfo& info = call_.executable->info();
    PJRT_Device* device = call_.executable->device();
    if (info.may_wait()) {
      host_programs_ = &device->host_programs;
      ++*host_programs_;
    }
    if (info.uses_feeds) {
      feed_calls_over_ = &device->feed_calls_over;
      turn_ = device->feed_calls++;
    }
  }

  void Run() override {
    Status status;
    for (const EventPtr& event : call_.pending) {
      status = event->Wait();
      if (!status.ok()) break;
    }
    if (status.ok()) status = Caught([this] { return RunProgram(call_); });
    // Release the memory before anyone can act on the event.
    call_ = Call();
    Finish(std::move(status));
  }
  void Cancel(const Status& why) override { Finish(why); }

  bool MayWait() const override { return may_wait_; }
  bool IsReady() const override {
    if (feed_calls_over_ != nullptr && *feed_calls_over_ != turn_) return false;
    return std::all_of(call_.pending.begin(), call_.pending.end(),
                       [](const EventPtr& event) { return event->IsReady(); });
  }

 private:
  void Finish(Status status) {
    if (host_programs_ != nullptr) --*host_programs_;
    if (feed_calls_over_ != nullptr) ++*feed_calls_over_;
    done_->Set(std::move(status));
  }

  Call call_;
  EventPtr done_;
  const bool may_wait_;
  std::atomic<int>* host_programs_ = nullptr;         // of the device
  std::atomic<uint64_t>* feed_calls_over_ = nullptr;  // likewise
  uint64_t turn_ = 0;  // among the calls that use feeds
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
  for (const EventPtr& event : call.pending) {
    if (status.ok()) status = event->Wait();
  }
  if (status.ok()) status = Caught([&] { return RunProgram(call); });
  return status.ok() ? nullptr : std::make_shared<Event>(std::move(status));
}

// The arguments that this call consumes: those that the program donates, except
// for those the caller asked to keep.
std::vector<uint32_t> DonatedArguments(const Executable& executable,
                                       const PJRT_ExecuteOptions* options) {
  std::vector<uint32_t> donated = executable.donated();
  if (options == nullptr) return donated;
  const std::span<const int64_t> keep(options->non_donatable_input_indices,
                                      options->num_non_donatable_input_indices);
  std::erase_if(donated, [&](uint32_t i) {
    return std::find(keep.begin(), keep.end(), static_cast<int64_t>(i)) !=
           keep.end();
  });
  return donated;
}

// A donated buffer may be passed only once in the same call.
Status CheckDonatedOnce(std::span<PJRT_Buffer* const> arguments,
                        std::span<const uint32_t> donated) {
  if (donated.empty()) return Status();
  // Flags instead of a set, because every training step runs this.
  bool twice = false;
  for (uint32_t i : donated) {
    twice = twice || arguments[i]->being_donated;
    arguments[i]->being_donated = true;
  }
  size_t uses = 0;
  for (const PJRT_Buffer* argument : arguments) uses += argument->being_donated;
  for (uint32_t i : donated) arguments[i]->being_donated = false;
  if (!twice && uses == donated.size()) return Status();
  return InvalidArgument(
      "Attempt to use a buffer that was previously donated in the same call "
      "to Execute(). Toy example for this bug: `f(donate(a), a)`.");
}

Status CheckArgument(const Executable& executable, size_t i,
                     const PJRT_Buffer& argument) {
  if (argument.device != executable.device()) [[unlikely]] {
    return InvalidArgument(
        "argument " + std::to_string(i) + " of program " +
        executable.info().name + " is on " + argument.device->description.text +
        ", but the program runs on " + executable.device()->description.text);
  }
  const TensorInfo& expected = executable.info().arguments[i];
  if (argument.info->bytes != expected.bytes ||
      argument.info->dtype != expected.dtype) [[unlikely]] {
    return InvalidArgument("argument " + std::to_string(i) + " of program " +
                           executable.info().name + " has " +
                           std::to_string(argument.info->bytes) +
                           " bytes of PJRT type " +
                           std::to_string(argument.info->dtype) +
                           ", expected " + std::to_string(expected.bytes) +
                           " bytes of type " + std::to_string(expected.dtype));
  }
  if (argument.info->minor_to_major != expected.minor_to_major) [[unlikely]] {
    return InvalidArgument("argument " + std::to_string(i) + " of program " +
                           executable.info().name +
                           " has a different dimension order in memory from "
                           "the one the program was compiled for");
  }
  return Status();
}

// Fills everything in `call` but its results. Consumes nothing on failure.
Status TakeArguments(std::span<PJRT_Buffer* const> arguments,
                     std::span<const uint32_t> donated, Call* call,
                     Status* poison) {
  const Executable& executable = *call->executable;
  if (arguments.size() != executable.info().arguments.size()) {
    return InvalidArgument("program " + executable.info().name + " takes " +
                           std::to_string(executable.info().arguments.size()) +
                           " arguments, got " +
                           std::to_string(arguments.size()));
  }
  call->arguments.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const PJRT_Buffer& argument = *arguments[i];
    IPU_RETURN_IF_ERROR(CheckArgument(executable, i, argument));
    call->arguments.push_back(argument.Get());
    if (call->arguments.back() == nullptr) return DeletedError();
    if (!IsReady(argument.ready)) {
      call->pending.push_back(argument.ready);
    } else if (poison->ok() && argument.ready != nullptr) {
      *poison = argument.ready->status();
    }
  }
  return CheckDonatedOnce(arguments, donated);
}

// Checks that the run fits into SRAM beside everything else there, reserves
// space for its results and releases the donated arguments'. Arguments that the
// program would overwrite but the caller keeps need additional space.
Status CheckSram(std::span<PJRT_Buffer* const> arguments,
                 std::span<const uint32_t> donated, const ArgumentMoves& moves,
                 const Executable& executable, Sram::Room* results) {
  Sram& sram = executable.device()->sram;
  SramNeed need = executable.sram_need();
  if (donated.size() != executable.donated().size()) [[unlikely]] {
    for (uint32_t i : executable.donated()) {
      need.tile_bytes += executable.argument_tile_bytes(i);
    }
    for (uint32_t i : donated) {
      need.tile_bytes -= executable.argument_tile_bytes(i);
    }
  }
  // A buffer passed as two arguments occupies SRAM once.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]->being_passed) {
      need.tile_bytes += executable.argument_tile_bytes(i);
    }
    arguments[i]->being_passed = true;
  }
  for (PJRT_Buffer* argument : arguments) argument->being_passed = false;
  std::vector<Resident*> leaving;
  leaving.reserve(donated.size());
  for (uint32_t i : donated) leaving.push_back(arguments[i]->resident());
  const int64_t excess = sram.Admit(need, moves.moves, leaving, results);
  if (excess <= 0) [[likely]]
    return Status();
  const std::string& name = executable.info().name;
  if (results->sram == nullptr) {
    std::vector<const Resident*> among;
    for (PJRT_Buffer* a : arguments) among.push_back(a->resident());
    return sram.NoRoom(name, need, excess, among);
  }
  if (executable.WarnsOfSram()) sram.Warn("program " + name, excess);
  return Status();
}

// Allocates the results, or reuses the storage of the arguments they replace if
// nothing else reads it: neither a pending call nor one that this call may
// overtake.
void GiveResultsMemory(std::span<PJRT_Buffer* const> arguments,
                       std::span<const uint32_t> donated, bool in_order,
                       Call* call) {
  const Executable& executable = *call->executable;
  const std::vector<TensorInfo>& results = executable.info().results;
  std::vector<bool> reusable(donated.empty() ? 0 : arguments.size());
  // Storage allocates lazily, so nothing can fail once arguments have been
  // donated.
  call->results.reserve(results.size());
  for (const TensorInfo& result : results) {
    call->results.push_back(std::make_shared<Storage>(result.bytes));
  }
  for (uint32_t i : donated) reusable[i] = arguments[i]->Donate() && in_order;
  for (size_t j = 0; j < results.size() && !donated.empty(); ++j) {
    const int i = executable.alias_of_result(j);
    if (i >= 0 && reusable[i]) call->results[j] = call->arguments[i];
  }
}

// Whether the calling thread waits for a call and runs it, which must not delay
// it for host functions: they may wait for what the caller does next.
bool RunsOnCaller(const Call& call) {
  return call.executable->info().caller_waits && call.pending.empty() &&
         call.executable->device()->host_programs == 0 &&
         HostCalls::Current() == nullptr;
}

// Runs or queues `call`. The returned event signals its completion.
EventPtr Dispatch(Call call, const Status& poison) {
  if (!poison.ok()) return std::make_shared<Event>(poison);
  WorkQueue& queue = call.executable->device()->queue;
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

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  Call call;
  call.executable = args->executable->Get();
  if (call.executable == nullptr) {
    return MakeError(InvalidArgument("the executable has been deleted"));
  }
  // Keeps the executable alive until the results are created, after `call` has
  // been moved away.
  const ExecutablePtr executable = call.executable;
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
      const ArgumentMoves moves = FindMoves(*executable, arguments);
      poison = CheckSram(arguments, donated, moves, *executable, &room);
      if (poison.ok()) Apply(moves, *executable, arguments);
      call.moving_cycles = moves.cycles;
      call.moving_bytes = moves.exchange_bytes;
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
  size_t made = 0;
  try {
    for (; made < results.size(); ++made) {
      args->output_lists[0][made] = new PJRT_Buffer(
          executable->memory_of_result(made), executable->result(made),
          std::move(results[made]), done);
      if (room.sram != nullptr) args->output_lists[0][made]->EnterSram(&room);
    }
  } catch (...) {
    while (made > 0) delete args->output_lists[0][--made];
    throw;
  }
  if (args->device_complete_events != nullptr) {
    args->device_complete_events[0] = MakeEvent(std::move(done));
  }
  return nullptr;
}

}  // namespace

void AddExecuteFunctions(PJRT_Api* api) {
  api->PJRT_LoadedExecutable_Execute = kGuarded<Execute>;
}

}  // namespace ipu
