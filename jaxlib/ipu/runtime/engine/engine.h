// What the PJRT layer sees of a machine: load a program, run it, read
// counters. The IPU model implements it (runtime/model); a Poplar device would
// (runtime/poplar).
//
// Contract: no call here needs Python. Load and Run may be called from any
// thread; Run of one LoadedProgram may overlap with itself.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// Element types, numbered as PJRT_Buffer_Type numbers them.
using DType = uint8_t;

// A tile mapping of an array that is not the default one of its shape and type.
struct ArrayLayout {
  std::vector<int64_t> mapping;  // equal for equal mappings
  int64_t tile_bytes = 0;        // of the fullest tile
  // What it takes to move an array to it, and back.
  double cycles_from_default = 0;
  double cycles_to_default = 0;
  double bytes_from_default = 0;
  double bytes_to_default = 0;
};

// Null: the default layout.
using ArrayLayoutPtr = std::shared_ptr<const ArrayLayout>;

struct TensorInfo {
  DType dtype;
  std::vector<int64_t> shape;
  size_t bytes;  // dense, one byte per element below 8 bits
  // Dimensions from the innermost in memory; empty: row-major.
  std::vector<int64_t> minor_to_major = {};
  bool on_host = false;  // in the host's memory
  // Of the SRAM of the tile that has most of it between programs; known to the
  // PJRT layer.
  int64_t tile_bytes = 0;
  // Where a program wants an argument, or leaves a result.
  ArrayLayoutPtr layout = nullptr;
};

// The machine that a program was planned for.
struct Plan {
  std::string version;  // "ipu2"
  int64_t num_tiles = 0;
  int64_t bytes_per_tile = 0;
};

// What a program says of itself, all decided at compile time.
struct ProgramInfo {
  std::string name;
  Plan plan;
  std::vector<TensorInfo> arguments;
  std::vector<TensorInfo> results;
  // result j is written over argument i when the caller donates i.
  struct Alias {
    uint32_t argument;
    uint32_t result;
  };
  std::vector<Alias> aliases;
  // Arguments that alias nothing but may be freed by the call.
  std::vector<uint32_t> donors;
  // What compiled.cost_analysis() returns, in order.
  std::vector<std::pair<std::string, double>> cost_analysis;
  // What compiled.memory_analysis() returns. Bytes, over all tiles.
  int64_t argument_bytes = 0;
  int64_t result_bytes = 0;
  int64_t alias_bytes = 0;
  int64_t temporary_bytes = 0;
  int64_t code_bytes = 0;
  int64_t peak_tile_bytes = 0;  // of the fullest tile at its fullest moment
  int64_t total_bytes() const {
    return argument_bytes + result_bytes - alias_bytes + temporary_bytes +
           code_bytes;
  }
  // The optimised module: StableHLO, MLIR bytecode or text.
  std::string module;
  // The program calls functions of the host, which may call this engine.
  bool calls_host = false;
  // A guess of the wall time of one run on the model, seconds: the PJRT layer
  // runs what is short on the calling thread.
  double estimated_seconds = 0;
};

// Filled by Run. Cycles are of the modelled machine, all supersteps together.
struct RunCounters {
  double cycles = 0;
  double exchange_bytes = 0;
};

class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual const ProgramInfo& info() const = 0;

  // arguments[i] and results[j] point to info().arguments[i].bytes and
  // info().results[j].bytes of memory, aligned to 64 bytes. results[j] ==
  // arguments[i] is allowed for the pairs in info().aliases and means that i
  // was donated; otherwise no two of them overlap, but for arguments among
  // themselves.
  virtual Status Run(std::span<const void* const> arguments,
                     std::span<void* const> results, RunCounters* counters) = 0;
};

// One machine: an IPU, or a model of one.
class Engine {
 public:
  virtual ~Engine() = default;

  // Checks everything it reads. DATA_LOSS for bytes that are cut or bent,
  // INVALID_ARGUMENT for a program of another format version. Whether it was
  // planned for this machine is for the caller to check.
  virtual StatusOr<std::unique_ptr<LoadedProgram>> Load(
      std::span<const uint8_t> program) = 0;
};

// The engine that models an IPU on the host's processor. `threads` <= 0 takes
// one per core.
std::unique_ptr<Engine> MakeModelEngine(int threads);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_
