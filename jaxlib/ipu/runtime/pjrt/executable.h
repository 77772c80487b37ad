// PJRT_Executable and PJRT_LoadedExecutable: a compiled program, and one that
// is loaded on its devices: one, or one for each partition. The devices of some
// partitions may be other processes'.
//
// Executable::Load takes a program's bytes, checks them against the devices and
// derives everything that PJRT asks about a program. It never runs anything;
// execute.cc does.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_EXECUTABLE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_EXECUTABLE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/client.h"
#include "jaxlib/ipu/runtime/pjrt/layouts.h"
#include "jaxlib/ipu/runtime/pjrt/named_values.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

// The state shared by all handles of one executable. Immutable after loading
// except for run-time statistics, which are atomic, so it needs no lock. Queued
// work keeps it alive.
class Executable {
 public:
  // `options` are the compile options without devices. `devices` are those of
  // the partitions, in their order, at least one of them of this process; all
  // run what is loaded on the first one.
  static StatusOr<std::shared_ptr<const Executable>> Load(
      ProgramBytes bytes, std::string options,
      std::vector<PJRT_Device*> devices);
  ~Executable();

  const ProgramInfo& info() const { return program_->info(); }
  LoadedProgram& program() const { return *program_; }
  // Of a program with one partition.
  PJRT_Device* device() const { return devices_[0]; }
  // The devices of this process, and their partitions, which ascend.
  const std::vector<PJRT_Device*>& devices() const { return devices_; }
  const std::vector<uint32_t>& partitions() const { return partitions_; }
  // The devices of all partitions.
  const std::vector<PJRT_Device*>& all_devices() const { return all_devices_; }
  bool spans_processes() const { return devices_.size() < all_devices_.size(); }
  std::string_view bytes() const { return {bytes_->data(), bytes_->size()}; }
  const std::string& options() const { return options_; }

  // The argument whose memory result `j` reuses, or -1.
  int alias_of_result(size_t j) const { return alias_of_result_[j]; }
  // The arguments that a call consumes, in ascending order.
  const std::vector<uint32_t>& donated() const { return donated_; }
  const TensorInfoPtr& result(size_t j) const { return results_[j]; }
  PJRT_Memory* memory_of_result(size_t j, PJRT_Device* device) const {
    return results_[j]->on_host ? &device->host_memory : &device->memory;
  }
  // The SRAM a run needs on each device in addition to its arguments.
  const SramNeed& sram_need() const { return sram_need_; }
  int64_t argument_tile_bytes(size_t i) const {
    return argument_tile_bytes_[i];
  }
  // Returns true on the first call only.
  bool WarnsOfSram() const { return !warned_.exchange(true); }
  // Whether the program is so short that waking another thread would take
  // longer: judged by the compiler's estimate at first, then by measured runs.
  // A gang wakes a thread for each partition, so what counts is the time of
  // one.
  bool is_short() const;
  void Took(double seconds) const;  // on one device

  const NamedValues& costs() const { return costs_; }
  const std::string& fingerprint() const { return fingerprint_; }
  // The module OptimizedProgram returns by default; see signature.h.
  const std::string& signature() const { return signature_; }
  const std::vector<PJRT_Buffer_Type>& result_types() const {
    return result_types_;
  }
  const std::vector<int64_t>& result_dims() const { return result_dims_; }
  const std::vector<size_t>& result_ranks() const { return result_ranks_; }
  // The memory kinds of the results, and the lengths of their names.
  const std::vector<const char*>& result_kinds() const { return result_kinds_; }
  const std::vector<size_t>& result_kind_sizes() const {
    return result_kind_sizes_;
  }
  PJRT_Layouts_MemoryLayout** result_layouts() const;

 private:
  Executable(ProgramBytes bytes, std::string options,
             std::vector<PJRT_Device*> devices,
             std::unique_ptr<LoadedProgram> program);
  void PlanSram();
  std::vector<int64_t> TileNeeds() const;
  Status CheckPlan() const;
  Status CheckInfo() const;

  const ProgramBytes bytes_;
  const std::string options_;
  const std::vector<PJRT_Device*> all_devices_;
  std::vector<PJRT_Device*> devices_;
  std::vector<uint32_t> partitions_;
  const std::unique_ptr<LoadedProgram> program_;
  std::vector<FeedPtr> infeeds_;         // of the devices
  mutable std::atomic<double> seconds_;  // expected duration of a run
  mutable std::atomic<bool> warned_{false};
  const LazyTiles tile_needs_{[this] { return TileNeeds(); }};
  SramNeed sram_need_;
  std::vector<int64_t> argument_tile_bytes_;

  std::vector<int> alias_of_result_;
  std::vector<uint32_t> donated_;
  std::vector<TensorInfoPtr> results_;
  NamedValues costs_;
  std::string fingerprint_;
  std::string signature_;
  std::vector<PJRT_Buffer_Type> result_types_;
  std::vector<int64_t> result_dims_;  // of all results, concatenated
  std::vector<size_t> result_ranks_;
  std::vector<const char*> result_kinds_;
  std::vector<size_t> result_kind_sizes_;
  // Created on first use.
  mutable std::once_flag layouts_once_;
  mutable std::vector<PJRT_Layouts_MemoryLayout> owned_layouts_;
  mutable std::vector<PJRT_Layouts_MemoryLayout*> layouts_;
};

using ExecutablePtr = std::shared_ptr<const Executable>;

void AddExecutableFunctions(PJRT_Api* api);
void AddLoadedExecutableFunctions(PJRT_Api* api);
void AddOptimizedProgramFunctions(PJRT_Api* api);
void AddExecuteFunctions(PJRT_Api* api);

// Execute for a program of several partitions (execute_gang.cc).
PJRT_Error* ExecuteGang(const ExecutablePtr& executable,
                        PJRT_LoadedExecutable_Execute_Args* args);

}  // namespace ipu

struct PJRT_Executable {
  const ipu::ExecutablePtr executable;
};

struct PJRT_LoadedExecutable {
  explicit PJRT_LoadedExecutable(ipu::ExecutablePtr executable)
      : devices(executable->devices()),
        all_devices(executable->all_devices()),
        executable_(std::move(executable)) {}

  // Null after deletion.
  ipu::ExecutablePtr Get() const {
    std::lock_guard lock(mutex_);
    return executable_;
  }
  void Delete() {
    ipu::ExecutablePtr released;
    std::lock_guard lock(mutex_);
    released.swap(executable_);
  }

  const std::vector<PJRT_Device*> devices;  // of this process
  const std::vector<PJRT_Device*> all_devices;

 private:
  mutable std::mutex mutex_;
  ipu::ExecutablePtr executable_;
};

#endif  // JAXLIB_IPU_RUNTIME_PJRT_EXECUTABLE_H_
