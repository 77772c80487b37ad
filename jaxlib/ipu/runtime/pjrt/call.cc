#include "jaxlib/ipu/runtime/pjrt/call.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/support/unix_time.h"

namespace ipu {
namespace {

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

Status CheckArgument(const Executable& executable, const PJRT_Device& device,
                     size_t i, const PJRT_Buffer& argument) {
  if (argument.device != &device) [[unlikely]] {
    return InvalidArgument(
        "argument " + std::to_string(i) + " of program " +
        executable.info().name + " is on " + argument.device->description.text +
        ", but the program runs on " + device.description.text);
  }
  const TensorInfo& expected = executable.info().arguments[i];
  if (argument.info->bytes != expected.bytes ||
      argument.info->dtype != expected.dtype) [[unlikely]] {
    return InvalidArgument(
        "argument " + std::to_string(i) + " of program " +
        executable.info().name + " has " +
        std::to_string(argument.info->bytes) + " bytes of PJRT type " +
        std::to_string(Number(argument.info->dtype)) + ", expected " +
        std::to_string(expected.bytes) + " bytes of type " +
        std::to_string(Number(expected.dtype)));
  }
  if (argument.info->minor_to_major != expected.minor_to_major) [[unlikely]] {
    return InvalidArgument("argument " + std::to_string(i) + " of program " +
                           executable.info().name +
                           " has a different dimension order in memory from "
                           "the one the program was compiled for");
  }
  return Status();
}

// The SRAM of a run beside that of its arguments. Arguments that the program
// would overwrite but the caller keeps need additional space.
SramNeed NeedOf(std::span<PJRT_Buffer* const> arguments,
                std::span<const uint32_t> donated,
                const Executable& executable) {
  SramNeed need = executable.sram_need();
  const auto copy = [&](size_t i) {
    const TensorInfo& argument = executable.info().arguments[i];
    if (argument.on_host) return;
    need.tile_bytes += executable.argument_tile_bytes(i);
    need.copies.push_back(&argument);
  };
  if (donated.size() != executable.donated().size()) [[unlikely]] {
    for (uint32_t i : executable.donated()) {
      if (std::binary_search(donated.begin(), donated.end(), i)) continue;
      copy(i);
    }
  }
  // A buffer passed as two arguments occupies SRAM once.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]->being_passed) copy(i);
    arguments[i]->being_passed = true;
  }
  for (PJRT_Buffer* argument : arguments) argument->being_passed = false;
  return need;
}

}  // namespace

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
    IPU_RETURN_IF_ERROR(CheckArgument(executable, *call->device, i, argument));
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

SramClaim::SramClaim(std::span<PJRT_Buffer* const> arguments,
                     std::span<const uint32_t> donated, const Call& call)
    : arguments_(arguments),
      executable_(*call.executable),
      sram_(call.device->sram),
      need_(NeedOf(arguments, donated, executable_)),
      moves_(FindMoves(executable_, arguments)) {
  leaving_.reserve(donated.size());
  for (uint32_t i : donated) leaving_.push_back(arguments[i]->resident());
}

Status SramClaim::Admit(Call* call, Sram::Room* results) {
  const SramExcess excess = sram_.Admit(need_, moves_.moves, leaving_, results);
  IPU_RETURN_IF_ERROR(CheckExcess(excess, *results));
  ApplyMoves(call);
  return Status();
}

Status SramClaim::Reserve(Sram::Room* results) {
  return CheckExcess(sram_.Reserve(need_, moves_.moves, results), *results);
}

void SramClaim::Commit(Call* call) {
  sram_.Commit(need_, moves_.moves, leaving_);
  ApplyMoves(call);
}

Status SramClaim::CheckExcess(const SramExcess& excess,
                              const Sram::Room& results) {
  if (excess.bytes == 0) [[likely]]
    return Status();
  const std::string& name = executable_.info().name;
  if (results.sram == nullptr) {
    std::vector<const Resident*> among;
    for (PJRT_Buffer* a : arguments_) among.push_back(a->resident());
    return sram_.NoRoom(name, excess, among);
  }
  if (executable_.WarnsOfSram()) sram_.Warn("program " + name, excess);
  return Status();
}

void SramClaim::ApplyMoves(Call* call) {
  Apply(moves_, executable_, arguments_);
  call->moving_cycles = moves_.cycles;
  call->moving_bytes = moves_.exchange_bytes;
}

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

Status Pointers::Find(const Call& call) {
  arguments_.reserve(call.arguments.size());
  results_.reserve(call.results.size());
  const auto none = [&call](const char* what, const Storage& storage) {
    return ResourceExhausted(std::string("out of host memory for ") + what +
                             " of " + std::to_string(storage.bytes()) +
                             " bytes of program " +
                             call.executable->info().name);
  };
  for (const StoragePtr& storage : call.arguments) {
    arguments_.push_back(storage->data());
    if (arguments_.back() == nullptr) return none("an argument", *storage);
  }
  for (const StoragePtr& storage : call.results) {
    results_.push_back(storage->data());
    if (results_.back() == nullptr) return none("a result", *storage);
  }
  return Status();
}

RunCounters RunRecord::Counters() const {
  RunCounters counters;
  counters.times_host = begin_ns_ != 0;
  return counters;
}

void RunRecord::Finish(const Call& call, RunCounters counters) const {
  counters.cycles += call.moving_cycles;
  counters.exchange_bytes += call.moving_bytes;
  LogCycles(*call.device, call.executable->info().name, counters.cycles);
  if (begin_ns_ != 0) [[unlikely]] {
    Profiler::Add({call.executable, call.device->description.id,
                   call.device->machine, begin_ns_, UnixNanoseconds(), gang_,
                   call.moving_cycles, counters});
  }
  call.device->last_run.Set(call.executable->info(), std::move(counters));
}

void LogCycles(const PJRT_Device& device, const std::string& what,
               double cycles) {
  if (!device.machine.logs_cycles) [[likely]]
    return;
  const double hertz = static_cast<double>(device.machine.clock_hz);
  std::fprintf(stderr, "%s: %s took %.0f cycles (%.3f us at %.2f GHz)\n",
               device.description.text.c_str(), what.c_str(), cycles,
               cycles / hertz * 1e6, hertz / 1e9);
}

Waiting::Waiting(const Call& call) {
  const ProgramInfo& info = call.executable->info();
  if (info.may_wait()) {
    programs_ = &call.device->host_programs;
    ++*programs_;
  }
  if (info.uses_feeds) {
    over_ = &call.device->feed_calls_over;
    turn_ = call.device->feed_calls++;
  }
}

void Waiting::Leave() {
  if (programs_ != nullptr) --*programs_;
  if (over_ != nullptr) ++*over_;
}

Status WaitForArguments(const Call& call) {
  for (const EventPtr& event : call.pending) {
    IPU_RETURN_IF_ERROR(event->Wait());
  }
  return Status();
}

void MakeResults(const Executable& executable, PJRT_Device* device,
                 std::vector<StoragePtr> results, const EventPtr& done,
                 Sram::Room* room, PJRT_Buffer** list) {
  size_t made = 0;
  try {
    for (; made < results.size(); ++made) {
      list[made] = new PJRT_Buffer(executable.memory_of_result(made, device),
                                   executable.result(made),
                                   std::move(results[made]), done);
      if (room->sram != nullptr) list[made]->EnterSram(room);
    }
  } catch (...) {
    while (made > 0) delete list[--made];
    throw;
  }
}

}  // namespace ipu
