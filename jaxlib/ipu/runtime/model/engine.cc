// The engine that models an IPU on the host's processor: validates a program,
// loads it as an Executable, and runs it, on one device or on several.

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/model/arena_pool.h"
#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/model/execution.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/index_arrays.h"
#include "jaxlib/ipu/runtime/model/loader.h"
#include "jaxlib/ipu/runtime/model/meetings.h"
#include "jaxlib/ipu/runtime/model/program_info.h"
#include "jaxlib/ipu/runtime/model/run_memory.h"
#include "jaxlib/ipu/runtime/model/step_info.h"
#include "jaxlib/ipu/runtime/program/container.h"
#include "jaxlib/ipu/runtime/program/validate.h"
#include "jaxlib/ipu/runtime/support/ieee_arithmetic.h"

namespace ipu {
namespace model {
namespace {

// How long a thread waits for one exchange with other processes before it looks
// at the others, and for Ctrl-C.
constexpr std::chrono::milliseconds kSlice(20);

// Shared by all programs of an engine; they keep it alive.
struct Machine {
  explicit Machine(int count) : threads(count) {}
  ThreadPool threads;
  ArenaPool arenas;
};

// An error for the user: running out of memory names the program.
Status Explained(const ProgramInfo& info, const Status& status) {
  if (status.message() != NoHostMemory().message()) return status;
  return ResourceExhausted("out of host memory while running program " +
                           info.name +
                           ": free arrays, or run fewer programs at a time");
}

// Gives a run its memory.
Status Bind(const ProgramInfo& info, const Executable& executable,
            const Share& share, RunMemory& memory) {
  const auto [arguments, results, counters] = share;
  if (arguments.size() != info.arguments.size() ||
      results.size() != info.results.size()) {
    return InvalidArgument("program " + info.name + " takes " +
                           std::to_string(info.arguments.size()) +
                           " arguments and " +
                           std::to_string(info.results.size()) +
                           " results, got " + std::to_string(arguments.size()) +
                           " and " + std::to_string(results.size()));
  }
  if (memory.Bind(executable, arguments, results)) return Status();
  return ResourceExhausted("out of host memory for the " +
                           std::to_string(executable.arena_bytes) +
                           " bytes of temporaries of program " + info.name);
}

bool TimesHost(const Share& share) {
  return share.counters != nullptr && share.counters->times_host;
}

// A run on several devices. Every partition has memory and a place of its own.
class ModelGang : public Gang {
 public:
  ModelGang(const ProgramInfo& info, const Executable& executable,
            Machine& machine, std::vector<int64_t> devices, ProcessRunPtr run)
      : info_(info),
        executable_(executable),
        machine_(machine),
        meetings_(std::move(devices), info.name, std::move(run)) {}

  Status RunAll(std::span<const Share> shares) override {
    const IeeeArithmetic arithmetic;
    const Status status = Caught([&] { return RunInTurn(shares); });
    return status.ok() ? status : Explained(info_, status);
  }

  Status Run(uint32_t partition, const Share& share) override {
    const IeeeArithmetic arithmetic;
    Status status = Caught([&] { return RunOne(partition, share); });
    if (!status.ok()) status = Explained(info_, status);
    meetings_.End(partition, status);
    return meetings_.status();
  }

  void Cancel(uint32_t partition, const Status& why) override {
    meetings_.End(partition, why);
  }

 private:
  Status RunOne(uint32_t partition, const Share& share) {
    RunMemory memory(machine_.arenas);
    IPU_RETURN_IF_ERROR(Bind(info_, executable_, share, memory));
    Execution run(executable_, {memory.bases(), partition}, machine_.threads,
                  TimesHost(share), &watch_);
    for (;;) {
      const auto next = run.Resume();
      IPU_RETURN_IF_ERROR(next.status());
      if (*next == nullptr) break;
      const auto exchange = Arrive(run, **next);
      while (exchange != nullptr && !Finish(*exchange)) {
      }
      IPU_RETURN_IF_ERROR(meetings_.Await(partition, watch_));
    }
    GiveCounters(run, share);
    return Status();
  }

  Status RunInTurn(std::span<const Share> shares) {
    std::deque<RunMemory> memories;
    std::deque<Execution> runs;
    std::vector<size_t> left(shares.size());
    std::iota(left.begin(), left.end(), 0);
    uint32_t partition = 0;
    for (const size_t i : left) {
      while (!meetings_.IsOwn(partition)) ++partition;
      RunMemory& memory = memories.emplace_back(machine_.arenas);
      IPU_RETURN_IF_ERROR(Bind(info_, executable_, shares[i], memory));
      runs.emplace_back(executable_, Memory{memory.bases(), partition++},
                        machine_.threads, TimesHost(shares[i]), &watch_);
    }
    // Of those that are left some can go on, or wait in exchanges, or the
    // meetings have failed.
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<std::optional<StatusOr<const Collective*>>> stops(left.size());
    std::vector<size_t> able;
    const auto runs_on = [&](size_t i) {
      return meetings_.Runs(runs[i].memory().partition);
    };
    Status status;
    while (!left.empty() && status.ok()) {
      able.clear();
      std::copy_if(left.begin(), left.end(), std::back_inserter(able), runs_on);
      ResumeAll(able, [&](size_t i) { stops[i] = runs[i].Resume(); });
      for (const size_t i : able) {
        const StatusOr<const Collective*>& next = *stops[i];
        if (next.ok() && *next != nullptr) {
          auto exchange = Arrive(runs[i], **next);
          if (exchange != nullptr) exchanges.push_back(std::move(exchange));
          continue;
        }
        meetings_.End(runs[i].memory().partition, next.status());
        std::erase(left, i);
        if (next.ok()) GiveCounters(runs[i], shares[i]);
      }
      // Another process may go on only when any of them is finished.
      while (!exchanges.empty() &&
             std::none_of(left.begin(), left.end(), runs_on)) {
        std::erase_if(exchanges, [&](auto& e) { return Finish(*e); });
      }
      status = meetings_.status();
    }
    return status;
  }

  // The first partition has all threads for its kernels and shows how long one
  // takes; the others are divided among the threads, if that is worth it. The
  // host's functions are called by this thread, which knows who waits for whom.
  template <typename F>
  void ResumeAll(std::span<const size_t> shares, const F& resume) {
    if (shares.empty()) return;
    using std::chrono::steady_clock;
    const auto begin = steady_clock::now();
    resume(shares[0]);
    const auto others = static_cast<int64_t>(shares.size()) - 1;
    if (others == 0) return;
    const auto resume_others = [&](int64_t i, int64_t end) {
      for (; i < end; ++i) resume(shares[i + 1]);
    };
    if (info_.may_wait()) return resume_others(0, others);
    const std::chrono::duration<double, std::nano> took =
        steady_clock::now() - begin;
    machine_.threads.ForItems(others, std::max(took.count(), 1.0),
                              resume_others);
  }

  std::unique_ptr<Exchange> Arrive(Execution& run, const Collective& at) {
    return meetings_.Arrive(at, run.memory(), run.counters().cycles,
                            machine_.threads);
  }

  void GiveCounters(Execution& run, const Share& share) const {
    if (share.counters == nullptr) return;
    *share.counters = std::move(run.counters());
    share.counters->waiting_cycles =
        meetings_.WaitingCycles(run.memory().partition);
  }

  bool Finish(Exchange& exchange) {
    return meetings_.Finish(exchange, kSlice, watch_, machine_.threads);
  }

  const ProgramInfo& info_;
  const Executable& executable_;
  Machine& machine_;
  Meetings meetings_;
  const InterruptWatch watch_;
};

class ModelProgram : public LoadedProgram {
 public:
  ModelProgram(ProgramBytes bytes, ProgramInfo info,
               std::unique_ptr<const Executable> executable,
               std::shared_ptr<Machine> machine)
      : bytes_(std::move(bytes)),
        info_(std::move(info)),
        executable_(std::move(executable)),
        machine_(std::move(machine)) {}

  const ProgramInfo& info() const override { return info_; }

  StatusOr<std::vector<StepInfo>> Steps() const override {
    const StatusOr<program::Contents> contents = program::Read(bytes_->span());
    if (!contents.ok()) return contents.status();
    return MakeSteps(contents->program);
  }

  Status Run(std::span<const void* const> arguments,
             std::span<void* const> results, RunCounters* counters) override {
    const IeeeArithmetic arithmetic;
    try {
      return RunAlone({arguments, results, counters});
    } catch (const std::bad_alloc&) {
      return Explained(info_, NoHostMemory());
    }
  }

  std::unique_ptr<Gang> MakeGang(std::vector<int64_t> devices,
                                 ProcessRunPtr run) override {
    return std::make_unique<ModelGang>(info_, *executable_, *machine_,
                                       std::move(devices), std::move(run));
  }

 private:
  Status RunAlone(const Share& share) {
    if (info_.num_partitions != 1) {
      return InvalidArgument("program " + info_.name + " is one of " +
                             std::to_string(info_.num_partitions) +
                             " devices and does not run on one of them alone");
    }
    RunMemory memory(machine_->arenas);
    IPU_RETURN_IF_ERROR(Bind(info_, *executable_, share, memory));
    Execution run(*executable_, {memory.bases()}, machine_->threads,
                  TimesHost(share));
    for (;;) {
      const auto next = run.Resume();
      IPU_RETURN_IF_ERROR(next.status());
      if (*next == nullptr) break;
      const Member member = (*next)->MemberOf(run.memory());
      IPU_RETURN_IF_ERROR((*next)->Run({&member, 1}, machine_->threads));
    }
    if (share.counters != nullptr) *share.counters = std::move(run.counters());
    return Status();
  }

  const ProgramBytes bytes_;  // what follows points into them
  const ProgramInfo info_;
  const std::unique_ptr<const Executable> executable_;
  const std::shared_ptr<Machine> machine_;
};

class ModelEngine : public Engine {
 public:
  explicit ModelEngine(int threads)
      : machine_(std::make_shared<Machine>(threads)) {}

  StatusOr<std::unique_ptr<LoadedProgram>> Load(ProgramBytes bytes) override {
    if (SupportedFactories().empty()) {
      return Status(Code::kFailedPrecondition,
                    "the IPU model needs a processor with AVX2");
    }
    // Values of constants alone are computed here.
    const IeeeArithmetic arithmetic;
    try {
      StatusOr<program::Contents> contents = program::Read(bytes->span());
      if (!contents.ok()) return contents.status();
      IPU_RETURN_IF_ERROR(
          program::Validate(contents->program, contents->constants.size()));
      ReadIndexArrays(contents->program);
      StatusOr<std::unique_ptr<const Executable>> executable =
          MakeExecutable(*contents, *SupportedFactories().back());
      if (!executable.ok()) return executable.status();
      ProgramInfo info = MakeInfo(std::move(*contents));
      info.calls_host = !(*executable)->host_calls.empty();
      info.uses_feeds = !(*executable)->feeds.empty();
      for (const auto& feed : (*executable)->feeds) {
        if (!feed->to_host && !feed->feed) {
          info.infeed_types.push_back(feed->type);
        }
      }
      // A caller may still have to fill the feed.
      for (const auto& call : (*executable)->host_calls) {
        info.caller_waits |= call->caller_waits() && !info.uses_feeds;
      }
      return std::unique_ptr<LoadedProgram>(std::make_unique<ModelProgram>(
          std::move(bytes), std::move(info), std::move(*executable), machine_));
    } catch (...) {
      return StatusOfException();
    }
  }

 private:
  const std::shared_ptr<Machine> machine_;
};

}  // namespace
}  // namespace model

std::unique_ptr<Engine> MakeModelEngine(int threads) {
  return std::make_unique<model::ModelEngine>(threads);
}

}  // namespace ipu
