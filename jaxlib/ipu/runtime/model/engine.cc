// The engine that models an IPU on the host's processor: validates a program,
// loads it as an Executable, and gives each run its memory.

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/model/arena_pool.h"
#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/loader.h"
#include "jaxlib/ipu/runtime/model/program_info.h"
#include "jaxlib/ipu/runtime/program/container.h"
#include "jaxlib/ipu/runtime/program/validate.h"
#include "jaxlib/ipu/runtime/support/ieee_arithmetic.h"

namespace ipu {
namespace model {
namespace {

// Shared by all programs of an engine; they keep it alive.
struct Machine {
  explicit Machine(int count) : threads(count) {}
  ThreadPool threads;
  ArenaPool arenas;
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

  Status Run(std::span<const void* const> arguments,
             std::span<void* const> results, RunCounters* counters) override {
    const IeeeArithmetic arithmetic;
    try {
      return RunInMemory(arguments, results, counters);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted(
          "out of host memory while running program " + info_.name +
          ": free arrays, or run fewer programs at a time");
    }
  }

 private:
  Status RunInMemory(std::span<const void* const> arguments,
                     std::span<void* const> results, RunCounters* counters) {
    if (arguments.size() != info_.arguments.size() ||
        results.size() != info_.results.size()) {
      return InvalidArgument(
          "program " + info_.name + " takes " +
          std::to_string(info_.arguments.size()) + " arguments and " +
          std::to_string(info_.results.size()) + " results, got " +
          std::to_string(arguments.size()) + " and " +
          std::to_string(results.size()));
    }
    // The temporaries of most programs fit on the stack: no lock, and warm in
    // the cache.
    alignas(64) char small_arena[16 << 10];
    AlignedBytes arena;
    const bool small = executable_->arena_bytes <= sizeof small_arena;
    if (!small) {
      arena = machine_->arenas.Take(executable_->arena_bytes);
      if (arena.data() == nullptr) {
        return ResourceExhausted("out of host memory for the " +
                                 std::to_string(executable_->arena_bytes) +
                                 " bytes of temporaries of program " +
                                 info_.name);
      }
    }
    char* few_bases[64];
    std::unique_ptr<char*[]> many_bases;
    char** bases = few_bases;
    const size_t count = kFirstArgumentBase + arguments.size() + results.size();
    if (count > std::size(few_bases)) {
      many_bases = std::make_unique_for_overwrite<char*[]>(count);
      bases = many_bases.get();
    }
    char** base = bases;
    *base++ = small ? small_arena : arena.data();
    // The const_casts are safe: nothing is written to constants, as Validate
    // has checked, and to an argument only if it was donated.
    *base++ = const_cast<char*>(executable_->constants);
    for (const void* argument : arguments) {
      *base++ = static_cast<char*>(const_cast<void*>(argument));
    }
    for (void* result : results) *base++ = static_cast<char*>(result);

    RunCounters run;
    const Status status =
        Execute(*executable_, Memory{bases}, machine_->threads, run);
    if (counters != nullptr) *counters = std::move(run);
    if (!small) machine_->arenas.Return(std::move(arena));
    return status;
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
