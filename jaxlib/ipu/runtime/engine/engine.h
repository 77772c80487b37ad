// The PJRT layer's interface to a machine: load a program, run it, read its
// counters. The IPU model (runtime/model) implements it; a Poplar device would
// go into runtime/poplar.
//
// Contract: no call needs Python. Load and Run are thread-safe, and several
// threads may run the same LoadedProgram at once.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/engine/process_run.h"
#include "jaxlib/ipu/runtime/engine/steps.h"
#include "jaxlib/ipu/runtime/support/aligned_bytes.h"
#include "jaxlib/ipu/runtime/support/dtype.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// A serialised program. It is read in place: constants are used where they are.
using ProgramBytes = std::shared_ptr<const AlignedBytes>;

// A tile mapping of an array other than the default one of its shape and type.
struct ArrayLayout {
  std::vector<int64_t> mapping;  // equal for equal mappings
  int64_t tile_bytes = 0;        // on the fullest tile
  // Cost of moving the array from the default mapping to this one, and back.
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
  size_t bytes;  // dense; types of less than 8 bits take one byte per element
  // Dimensions from minor to major; empty: row-major.
  std::vector<int64_t> minor_to_major = {};
  bool on_host = false;  // in the host's memory
  // The SRAM the tensor takes between programs on the tile that holds most of
  // it. Set by the PJRT layer.
  int64_t tile_bytes = 0;
  // Where a program expects an argument, or leaves a result.
  ArrayLayoutPtr layout = nullptr;
};

// One array of an item of a feed (feed.h), dense and row-major.
struct FeedArray {
  DType dtype;
  std::vector<int64_t> shape;
  size_t bytes;
  bool operator==(const FeedArray&) const = default;
};

// The arrays of an item.
using FeedType = std::vector<FeedArray>;

// The machine that a program was compiled for.
struct Plan {
  std::string version;  // "ipu2"
  int64_t num_tiles = 0;
  int64_t bytes_per_tile = 0;
};

// The optimised module: StableHLO, MLIR bytecode or text.
struct ModuleText {
  std::string text;  // without what the program's constants hold
  // What was left out, and before which byte of `text`, in order. It belongs to
  // the program.
  std::vector<std::pair<size_t, std::string_view>> omitted;

  size_t size() const;
  // Writes the whole of it.
  void CopyTo(char* to) const;
};

// Adjacent tiles that need equally many bytes each.
struct TileRange {
  int64_t tiles;
  int64_t bytes;
};

// A program's description of itself; all of it is known at compile time.
struct ProgramInfo {
  std::string name;
  Plan plan;
  // How each argument and, last, all results are split over these devices:
  // serialised OpSharding protos of XLA's. Empty for one device.
  std::vector<std::string> shardings;
  std::vector<TensorInfo> arguments;
  std::vector<TensorInfo> results;
  // Result j overwrites argument i if the caller donates i.
  struct Alias {
    uint32_t argument;
    uint32_t result;
  };
  std::vector<Alias> aliases;
  // Arguments that alias no result but may be freed by the call.
  std::vector<uint32_t> donors;
  // The properties that compiled.cost_analysis() returns, in order.
  std::vector<std::pair<std::string, double>> cost_analysis;
  // What compiled.memory_analysis() returns: bytes, summed over all tiles.
  int64_t argument_bytes = 0;
  int64_t result_bytes = 0;
  int64_t alias_bytes = 0;
  int64_t temporary_bytes = 0;
  int64_t code_bytes = 0;
  int64_t peak_tile_bytes = 0;  // of the fullest tile, at the peak
  // The same for each tile, from the first one on. Empty: they are all alike.
  std::vector<TileRange> tile_ranges;
  int64_t total_bytes() const {
    return argument_bytes + result_bytes - alias_bytes + temporary_bytes +
           code_bytes;
  }
  // The user's lines of the loops whose trip counts are only known at run time.
  std::vector<std::string> loops;
  ModuleText module;
  // The program calls host functions, which may in turn call this engine.
  bool calls_host = false;
  // One of them should have run when a call of the program returns.
  bool caller_waits = false;
  // The number of devices that run it together.
  uint32_t num_partitions = 1;
  // The program waits for items of feeds, or for room in one.
  bool uses_feeds = false;
  // The items that it takes from its device's infeed.
  std::vector<FeedType> infeed_types;
  // A run may wait for something that its caller does later.
  bool may_wait() const { return calls_host || uses_feeds; }
  // Estimated wall time of one run on the model, in seconds. The PJRT layer
  // runs short programs on the calling thread.
  double estimated_seconds = 0;
};

// Cycles are those of the modelled machine, summed over all supersteps.
struct Counters {
  double cycles = 0;
  double exchange_bytes = 0;
};

// When a run waited for its host, in nanoseconds of Unix time.
struct HostWait {
  uint32_t step;  // StepInfo::number
  int64_t begin_ns;
  int64_t end_ns;
};

// Filled by Run.
struct RunCounters : Counters {
  // Of a run on several machines: the cycles in which this one waited for
  // others in collectives, which are not part of `cycles`. Those of other
  // processes are not known.
  double waiting_cycles = 0;
  // The iterations of each of ProgramInfo::loops.
  std::vector<uint64_t> trips;
  // How often each branch of each conditional ran.
  std::vector<uint64_t> branches;
  // Set by the caller: whether `waits` is wanted. False after a run that waited
  // too often to note more.
  bool times_host = false;
  std::vector<HostWait> waits;
};

// One machine's part in a run of a program on several; arguments and results
// are those of LoadedProgram::Run.
struct Share {
  std::span<const void* const> arguments;
  std::span<void* const> results;
  RunCounters* counters = nullptr;
};

// One run of a program on several machines, which are its partitions and
// exchange data in collectives. The first error of any of them is that of all.
// Some of the machines may be other processes'.
class Gang {
 public:
  virtual ~Gang() = default;

  // Runs all partitions of this process, in ascending order, on this thread:
  // each up to its next collective in turn.
  virtual Status RunAll(std::span<const Share> shares) = 0;

  // Runs one partition, which waits in collectives for the others: other
  // threads have to run or to cancel them. Never waits for ever.
  virtual Status Run(uint32_t partition, const Share& share) = 0;

  // Instead of Run; has no effect after it.
  virtual void Cancel(uint32_t partition, const Status& why) = 0;
};

class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual const ProgramInfo& info() const = 0;

  // The program's steps, for profilers. They are read again from the program at
  // each call.
  virtual StatusOr<std::vector<StepInfo>> Steps() const = 0;

  // arguments[i] and results[j] point to info().arguments[i].bytes and
  // info().results[j].bytes of memory, aligned to 64 bytes. results[j] ==
  // arguments[i] is allowed for the pairs in info().aliases and means that i
  // was donated. Otherwise no results overlap each other or an argument;
  // arguments may overlap each other.
  virtual Status Run(std::span<const void* const> arguments,
                     std::span<void* const> results, RunCounters* counters) = 0;

  // A run on several machines. `devices` has their ids, in the order of the
  // partitions, for error messages. `run` says which of them are other
  // processes'; null: none is. The program must outlive the gang.
  virtual std::unique_ptr<Gang> MakeGang(std::vector<int64_t> devices,
                                         ProcessRunPtr run) = 0;
};

// One machine: an IPU, or a model of one.
class Engine {
 public:
  virtual ~Engine() = default;

  // Checks everything it reads. Returns DATA_LOSS for truncated or corrupted
  // bytes and INVALID_ARGUMENT for a program of another format version. The
  // caller must check that the program was compiled for this machine. The
  // loaded program shares the bytes.
  virtual StatusOr<std::unique_ptr<LoadedProgram>> Load(
      ProgramBytes program) = 0;
};

// The engine that models an IPU on the host's processor, with `threads` threads
// or, if that is not positive, one per core.
std::unique_ptr<Engine> MakeModelEngine(int threads);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_ENGINE_H_
