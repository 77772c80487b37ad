#include "jaxlib/ipu/runtime/engine/run_program.h"

#include <cstring>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {
namespace {

// One engine for all callers, so that its threads are created once.
Engine& TheEngine() {
  static Engine* engine = MakeModelEngine(0).release();
  return *engine;
}

Status RunProgram(std::span<const uint8_t> bytes, const void* const* arguments,
                  void* const* results, RunCounters* counters) {
  StatusOr<std::unique_ptr<LoadedProgram>> program =
      TheEngine().Load(AlignedBytes::Copy(bytes));
  if (!program.ok()) return program.status();
  const ProgramInfo& info = (*program)->info();

  std::vector<AlignedBytes> blocks;  // aligned copies: arguments, then results
  std::vector<const void*> run_arguments;
  std::vector<void*> run_results;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    blocks.push_back(AlignedBytes::Allocate(info.arguments[i].bytes));
    if (blocks.back().data() == nullptr)
      return ResourceExhausted("out of memory for arguments");
    std::memcpy(blocks.back().data(), arguments[i], info.arguments[i].bytes);
    run_arguments.push_back(blocks.back().data());
  }
  for (size_t j = 0; j < info.results.size(); ++j) {
    void* donated = nullptr;
    for (const ProgramInfo::Alias& alias : info.aliases) {
      if (alias.result == j && arguments[alias.argument] == results[j]) {
        donated = blocks[alias.argument].data();
      }
    }
    if (donated == nullptr) {
      blocks.push_back(AlignedBytes::Allocate(info.results[j].bytes));
      if (blocks.back().data() == nullptr)
        return ResourceExhausted("out of memory for results");
      donated = blocks.back().data();
    }
    run_results.push_back(donated);
  }
  IPU_RETURN_IF_ERROR((*program)->Run(run_arguments, run_results, counters));
  for (size_t j = 0; j < info.results.size(); ++j) {
    std::memcpy(results[j], run_results[j], info.results[j].bytes);
  }
  return Status();
}

}  // namespace
}  // namespace ipu

extern "C" __attribute__((visibility("default"))) int ipu_run_program(
    const uint8_t* program, size_t size, const void* const* arguments,
    void* const* results, double* counters, char* error, size_t error_size) {
  ipu::RunCounters run;
  const ipu::Status status = ipu::Caught([&] {
    return ipu::RunProgram({program, size}, arguments, results, &run);
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
