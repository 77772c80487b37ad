// The steps of a program as profilers see them: where each comes from, what it
// costs, and how control flow nests them.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_STEPS_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ipu {

struct StepInfo {
  enum class Kind : uint8_t {
    kCompute,
    kExchange,
    kCollective,  // over the links between IPUs
    kStream,      // between the host's memory and the tiles
    kHost,        // a host function or a feed
    kRepeat,
    kWhile,
    kSwitch,
  };

  Kind kind = Kind::kCompute;
  std::string what;       // the codelet, or what the step does
  std::string operation;  // of StableHLO
  std::string name;       // JAX's: jit(f)/dot_general
  std::string file;
  uint32_t line = 0;
  // Of one run: cycles of the slowest tile, for kWhile of one test, for kSwitch
  // of the selection.
  double sync_cycles = 0;
  double exchange_cycles = 0;
  double compute_cycles = 0;
  double exchange_bytes = 0;
  double flops = 0;
  uint64_t count = 0;  // kRepeat: iterations
  // kWhile: index in RunCounters::trips. kSwitch: of its first branch in
  // RunCounters::branches. kHost: the number of HostWait.
  uint32_t number = 0;
  // kRepeat: body. kWhile: condition, body. kSwitch: the branches.
  std::vector<std::vector<StepInfo>> blocks;

  double cycles() const {
    return sync_cycles + exchange_cycles + compute_cycles;
  }
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_STEPS_H_
