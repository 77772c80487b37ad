#include "jaxlib/ipu/runtime/engine/run_program.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {
namespace {

// One engine for all callers, so that its threads are created once.
Engine& TheEngine() {
  static Engine* engine = MakeModelEngine(0).release();
  return *engine;
}

// Aligned copies of what one device reads and writes.
class Copies {
 public:
  Status Fill(const ProgramInfo& info, const void* const* arguments,
              void* const* results) {
    for (size_t i = 0; i < info.arguments.size(); ++i) {
      void* copy = Add(info.arguments[i].bytes);
      if (copy == nullptr) {
        return ResourceExhausted("out of memory for arguments");
      }
      std::memcpy(copy, arguments[i], info.arguments[i].bytes);
      arguments_.push_back(copy);
    }
    for (size_t j = 0; j < info.results.size(); ++j) {
      void* memory = nullptr;
      for (const ProgramInfo::Alias& alias : info.aliases) {
        if (alias.result == j && arguments[alias.argument] == results[j]) {
          memory = blocks_[alias.argument].data();  // donated
        }
      }
      if (memory == nullptr) memory = Add(info.results[j].bytes);
      if (memory == nullptr) {
        return ResourceExhausted("out of memory for results");
      }
      results_.push_back(memory);
    }
    return Status();
  }

  void CopyResults(const ProgramInfo& info, void* const* results) const {
    for (size_t j = 0; j < info.results.size(); ++j) {
      std::memcpy(results[j], results_[j], info.results[j].bytes);
    }
  }

  Share share(RunCounters* counters) const {
    return {arguments_, results_, counters};
  }

 private:
  void* Add(size_t bytes) {
    return blocks_.emplace_back(AlignedBytes::Allocate(bytes)).data();
  }

  std::vector<AlignedBytes> blocks_;
  std::vector<const void*> arguments_;
  std::vector<void*> results_;
};

// Runs a program on several devices, each on a thread if `threads`.
Status RunTogether(LoadedProgram& program, const std::vector<Share>& shares,
                   bool threads) {
  std::vector<int64_t> devices(shares.size());
  std::iota(devices.begin(), devices.end(), 0);
  const std::unique_ptr<Gang> gang =
      program.MakeGang(std::move(devices), /*run=*/nullptr);
  if (!threads) return gang->RunAll(shares);
  std::vector<Status> ends(shares.size());
  std::vector<std::thread> workers;
  for (uint32_t d = 0; d < shares.size(); ++d) {
    workers.emplace_back([&, d] { ends[d] = gang->Run(d, shares[d]); });
  }
  for (std::thread& worker : workers) worker.join();
  for (const Status& end : ends) IPU_RETURN_IF_ERROR(end);
  return Status();
}

Status RunProgram(std::span<const uint8_t> bytes, size_t num_devices,
                  bool threads, const void* const* arguments,
                  void* const* results, RunCounters* counters) {
  StatusOr<std::unique_ptr<LoadedProgram>> program =
      TheEngine().Load(AlignedBytes::Copy(bytes));
  if (!program.ok()) return program.status();
  const ProgramInfo& info = (*program)->info();
  if (num_devices != info.num_partitions) {
    return InvalidArgument("program " + info.name + " is one of " +
                           std::to_string(info.num_partitions) +
                           " devices, got " + std::to_string(num_devices));
  }
  std::vector<Copies> copies(num_devices);
  std::vector<Share> shares;
  for (size_t d = 0; d < num_devices; ++d) {
    IPU_RETURN_IF_ERROR(copies[d].Fill(info,
                                       arguments + d * info.arguments.size(),
                                       results + d * info.results.size()));
    shares.push_back(copies[d].share(d == 0 ? counters : nullptr));
  }
  if (num_devices == 1) {
    IPU_RETURN_IF_ERROR((*program)->Run(shares[0].arguments, shares[0].results,
                                        shares[0].counters));
  } else {
    IPU_RETURN_IF_ERROR(RunTogether(**program, shares, threads));
  }
  for (size_t d = 0; d < num_devices; ++d) {
    copies[d].CopyResults(info, results + d * info.results.size());
  }
  return Status();
}

}  // namespace
}  // namespace ipu

extern "C" __attribute__((visibility("default"))) int ipu_run_program(
    const uint8_t* program, size_t size, size_t num_devices, int threads,
    const void* const* arguments, void* const* results, double* counters,
    char* error, size_t error_size) {
  ipu::RunCounters run;
  const ipu::Status status = ipu::Caught([&] {
    return ipu::RunProgram({program, size}, num_devices, threads != 0,
                           arguments, results, &run);
  });
  if (counters != nullptr) {
    counters[0] = run.cycles;
    counters[1] = run.exchange_bytes;
  }
  if (!status.ok() && error != nullptr && error_size > 0) {
    const size_t n = std::min(status.message().size(), error_size - 1);
    std::memcpy(error, status.message().data(), n);
    error[n] = '\0';
  }
  return static_cast<int>(status.code());
}
