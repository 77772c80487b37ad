#include "jaxlib/ipu/runtime/pjrt/executable.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/array_tiles.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/serialized_executable.h"
#include "jaxlib/ipu/runtime/pjrt/signature.h"
#include "jaxlib/ipu/runtime/support/digest.h"

namespace ipu {
namespace {

// Programs expected to run for less than this run on the calling thread.
// Handing work to another thread costs about 10 us, and on a virtual machine
// 100 us for each thread that has to wake, which a short program cannot win
// back by freeing the host. The threshold is several times that because a
// queued program is measured including the wake-up of its threads, and must
// still be recognised as short.
constexpr double kShortSeconds = 1e-3;

// The same in every process; read by people and profilers.
std::string Fingerprint(std::string_view bytes) {
  Digest digest;
  digest.Add(bytes);
  uint64_t start;
  std::memcpy(&start, digest.Finish().data(), sizeof start);
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(start));
  return text;
}

PJRT_Error* Destroy(PJRT_Executable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}

PJRT_Error* Name(PJRT_Executable_Name_Args* args) {
  const std::string& name = args->executable->executable->info().name;
  args->executable_name = name.data();
  args->executable_name_size = name.size();
  return nullptr;
}

PJRT_Error* NumReplicas(PJRT_Executable_NumReplicas_Args* args) {
  args->num_replicas = 1;
  return nullptr;
}

PJRT_Error* NumPartitions(PJRT_Executable_NumPartitions_Args* args) {
  args->num_partitions = args->executable->executable->all_devices().size();
  return nullptr;
}

PJRT_Error* NumOutputs(PJRT_Executable_NumOutputs_Args* args) {
  args->num_outputs = args->executable->executable->info().results.size();
  return nullptr;
}

PJRT_Error* SizeOfGeneratedCodeInBytes(
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args* args) {
  args->size_in_bytes = args->executable->executable->info().code_bytes;
  return nullptr;
}

PJRT_Error* FingerprintFunction(PJRT_Executable_Fingerprint_Args* args) {
  const std::string& fingerprint = args->executable->executable->fingerprint();
  args->executable_fingerprint = fingerprint.data();
  args->executable_fingerprint_size = fingerprint.size();
  return nullptr;
}

PJRT_Error* GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args* args) {
  args->properties = args->executable->executable->costs().data();
  args->num_properties = args->executable->executable->costs().size();
  return nullptr;
}

// SRAM summed over all tiles. The host memory that models it is not a property
// of the program and is reported as 0.
PJRT_Error* GetCompiledMemoryStats(
    PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  const ProgramInfo& info = args->executable->executable->info();
  args->generated_code_size_in_bytes = info.code_bytes;
  args->argument_size_in_bytes = info.argument_bytes;
  args->output_size_in_bytes = info.result_bytes;
  args->alias_size_in_bytes = info.alias_bytes;
  args->temp_size_in_bytes = info.temporary_bytes;
  args->host_generated_code_size_in_bytes = 0;
  args->host_argument_size_in_bytes = 0;
  args->host_output_size_in_bytes = 0;
  args->host_alias_size_in_bytes = 0;
  args->host_temp_size_in_bytes = 0;
  args->total_size_in_bytes = info.total_bytes();
  args->peak_memory_in_bytes = args->total_size_in_bytes;
  return nullptr;
}

PJRT_Error* OutputElementTypes(PJRT_Executable_OutputElementTypes_Args* args) {
  const auto& types = args->executable->executable->result_types();
  args->output_types = const_cast<PJRT_Buffer_Type*>(types.data());
  args->num_output_types = types.size();
  return nullptr;
}

PJRT_Error* OutputDimensions(PJRT_Executable_OutputDimensions_Args* args) {
  const Executable& executable = *args->executable->executable;
  args->num_outputs = executable.result_ranks().size();
  args->dims = executable.result_dims().data();
  args->dim_sizes = executable.result_ranks().data();
  return nullptr;
}

PJRT_Error* OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args* args) {
  const Executable& executable = *args->executable->executable;
  args->num_outputs = executable.result_kinds().size();
  args->memory_kinds = executable.result_kinds().data();
  args->memory_kind_sizes = executable.result_kind_sizes().data();
  return nullptr;
}

PJRT_Error* Serialize(PJRT_Executable_Serialize_Args* args) {
  const Executable& executable = *args->executable->executable;
  std::vector<int64_t> ids;
  for (const PJRT_Device* device : executable.all_devices()) {
    ids.push_back(device->description.id);
  }
  auto* bytes = new PJRT_SerializedExecutable{
      SerializeExecutable(executable.options(), executable.bytes(), ids)};
  args->serialized_bytes = bytes->bytes.data();
  args->serialized_bytes_size = bytes->bytes.size();
  args->serialized_executable = bytes;
  args->serialized_executable_deleter =
      +[](PJRT_SerializedExecutable* serialized) { delete serialized; };
  return nullptr;
}

PJRT_Error* GetCompileOptions(PJRT_Executable_GetCompileOptions_Args* args) {
  auto* options = new PJRT_SerializedCompileOptions{
      args->executable->executable->options()};
  args->serialized_bytes = options->bytes.data();
  args->serialized_bytes_size = options->bytes.size();
  args->serialized_compile_options = options;
  args->serialized_compile_options_deleter =
      +[](PJRT_SerializedCompileOptions* serialized) { delete serialized; };
  return nullptr;
}

}  // namespace

StatusOr<std::shared_ptr<const Executable>> Executable::Load(
    ProgramBytes bytes, std::string options,
    std::vector<PJRT_Device*> devices) {
  PJRT_Device* const local = *std::find_if(devices.begin(), devices.end(),
                                           [](auto* d) { return d->is_local; });
  StatusOr<std::unique_ptr<LoadedProgram>> program =
      local->engine().Load(bytes);
  IPU_RETURN_IF_ERROR(program.status());
  std::shared_ptr<const Executable> executable(
      new Executable(std::move(bytes), std::move(options), std::move(devices),
                     std::move(*program)));
  IPU_RETURN_IF_ERROR(executable->CheckPlan());
  IPU_RETURN_IF_ERROR(executable->CheckInfo());
  return executable;
}

bool Executable::is_short() const {
  return seconds_.load(std::memory_order_relaxed) < kShortSeconds;
}

// Exponential moving average with weight 1/2, so that one slow run is soon
// forgotten. Of two concurrent runs one may go uncounted.
void Executable::Took(double seconds) const {
  const double before = seconds_.load(std::memory_order_relaxed);
  seconds_.store((before + seconds) / 2, std::memory_order_relaxed);
}

PJRT_Layouts_MemoryLayout** Executable::result_layouts() const {
  std::call_once(layouts_once_, [this] {
    owned_layouts_.reserve(results_.size());
    for (const TensorInfoPtr& result : results_) {
      layouts_.push_back(&owned_layouts_.emplace_back(LayoutOf(*result)));
    }
  });
  return layouts_.data();
}

Executable::Executable(ProgramBytes bytes, std::string options,
                       std::vector<PJRT_Device*> devices,
                       std::unique_ptr<LoadedProgram> program)
    : bytes_(std::move(bytes)),
      options_(std::move(options)),
      all_devices_(std::move(devices)),
      program_(std::move(program)),
      seconds_(info().estimated_seconds),
      alias_of_result_(info().results.size(), -1),
      donated_(info().donors),
      fingerprint_(Fingerprint(this->bytes())),
      signature_(MakeSignature(info())) {
  for (uint32_t i = 0; i < all_devices_.size(); ++i) {
    if (!all_devices_[i]->is_local) continue;
    devices_.push_back(all_devices_[i]);
    partitions_.push_back(i);
  }
  for (const ProgramInfo::Alias& alias : info().aliases) {
    if (alias.result < alias_of_result_.size()) {
      alias_of_result_[alias.result] = static_cast<int>(alias.argument);
    }
    donated_.push_back(alias.argument);
  }
  std::sort(donated_.begin(), donated_.end());
  for (const auto& [name, value] : info().cost_analysis) {
    costs_.AddNumber(name, value);
  }
  for (const TensorInfo& result : info().results) {
    auto known = std::make_shared<TensorInfo>(result);
    known->tile_bytes = TileBytes(result, device()->machine);
    results_.push_back(std::move(known));
    result_types_.push_back(static_cast<PJRT_Buffer_Type>(result.dtype));
    result_dims_.insert(result_dims_.end(), result.shape.begin(),
                        result.shape.end());
    result_ranks_.push_back(result.shape.size());
    const std::string_view kind =
        memory_of_result(results_.size() - 1, device())->kind;
    result_kinds_.push_back(kind.data());
    result_kind_sizes_.push_back(kind.size());
  }
  PlanSram();
  for (const PJRT_Device* device : devices_) {
    device->feeds.in()->Expect(info().infeed_types);
    infeeds_.push_back(device->feeds.in());
  }
}

Executable::~Executable() {
  for (const FeedPtr& infeed : infeeds_) infeed->Forget(info().infeed_types);
}

void Executable::PlanSram() {
  const Machine& machine = device()->machine;
  sram_need_.tile_bytes = info().peak_tile_bytes;
  sram_need_.bytes = info().total_bytes();
  sram_need_.overflows = info().peak_tile_bytes > machine.bytes_per_tile;
  for (const TensorInfo& argument : info().arguments) {
    const bool resident = !argument.on_host;
    argument_tile_bytes_.push_back(resident ? TileBytes(argument, machine) : 0);
    sram_need_.tile_bytes -= argument_tile_bytes_.back();
    if (resident) sram_need_.bytes -= static_cast<int64_t>(argument.bytes);
  }
  for (const TensorInfoPtr& result : results_) {
    if (result->on_host) continue;
    sram_need_.result_tile_bytes += result->tile_bytes;
    sram_need_.result_bytes += static_cast<int64_t>(result->bytes);
  }
  sram_need_.tiles = &tile_needs_;
  sram_need_.results = results_;
}

// What a run needs on each tile in addition to its arguments. A program that
// was planned for fewer tiles needs nothing of the others, on which parts of
// its arguments may be all the same.
std::vector<int64_t> Executable::TileNeeds() const {
  const Machine& machine = device()->machine;
  std::vector<TileRange> ranges = info().tile_ranges;
  if (ranges.empty())
    ranges = {{info().plan.num_tiles, info().peak_tile_bytes}};
  std::vector<int64_t> needs;
  for (const TileRange& range : ranges) {
    needs.insert(needs.end(), static_cast<size_t>(range.tiles), range.bytes);
  }
  needs.resize(static_cast<size_t>(machine.num_tiles));
  for (const TensorInfo& argument : info().arguments) {
    if (argument.on_host) continue;
    AddTileBytes(argument, argument.layout.get(), machine.data_path_bytes, -1,
                 needs);
  }
  for (int64_t& need : needs) need = std::max<int64_t>(need, 0);
  return needs;
}

// A stored program may come from another machine. One that was planned for
// fewer tiles runs on the whole machine.
Status Executable::CheckPlan() const {
  if (info().num_partitions != all_devices_.size()) {
    return InvalidArgument("program " + info().name + " was compiled for " +
                           std::to_string(info().num_partitions) +
                           " partitions, but is assigned to " +
                           std::to_string(all_devices_.size()) + " IPUs");
  }
  const Plan& plan = info().plan;
  const Machine& machine = device()->machine;
  if (plan.version == machine.version &&
      plan.bytes_per_tile == machine.bytes_per_tile &&
      plan.num_tiles <= machine.num_tiles) {
    return Status();
  }
  return InvalidArgument(
      "program " + info().name + " was compiled for " + plan.version +
      " with " + std::to_string(plan.num_tiles) + " tiles of " +
      std::to_string(plan.bytes_per_tile) + " bytes, but this device is " +
      machine.version + " with " + std::to_string(machine.num_tiles) +
      " tiles of " + std::to_string(machine.bytes_per_tile) +
      " bytes: compile it again");
}

// Checks the invariants that calls rely on. A violation is a compiler bug.
Status Executable::CheckInfo() const {
  for (size_t i = 0; i < donated_.size(); ++i) {
    if (donated_[i] >= info().arguments.size() ||
        (i > 0 && donated_[i] == donated_[i - 1])) {
      return Internal("program " + info().name + " donates argument " +
                      std::to_string(donated_[i]) +
                      ", which is out of range or donated twice");
    }
  }
  for (const ProgramInfo::Alias& alias : info().aliases) {
    if (alias.result >= info().results.size() ||
        info().results[alias.result].bytes !=
            info().arguments[alias.argument].bytes) {
      return Internal("program " + info().name + " aliases result " +
                      std::to_string(alias.result) + " to argument " +
                      std::to_string(alias.argument) +
                      ", which has a different size");
    }
  }
  return Status();
}

void AddExecutableFunctions(PJRT_Api* api) {
  api->PJRT_Executable_Destroy = kGuarded<Destroy>;
  api->PJRT_Executable_Name = kGuarded<Name>;
  api->PJRT_Executable_NumReplicas = kGuarded<NumReplicas>;
  api->PJRT_Executable_NumPartitions = kGuarded<NumPartitions>;
  api->PJRT_Executable_NumOutputs = kGuarded<NumOutputs>;
  api->PJRT_Executable_SizeOfGeneratedCodeInBytes =
      kGuarded<SizeOfGeneratedCodeInBytes>;
  api->PJRT_Executable_Fingerprint = kGuarded<FingerprintFunction>;
  api->PJRT_Executable_GetCostAnalysis = kGuarded<GetCostAnalysis>;
  api->PJRT_Executable_GetCompiledMemoryStats =
      kGuarded<GetCompiledMemoryStats>;
  api->PJRT_Executable_OutputElementTypes = kGuarded<OutputElementTypes>;
  api->PJRT_Executable_OutputDimensions = kGuarded<OutputDimensions>;
  api->PJRT_Executable_OutputMemoryKinds = kGuarded<OutputMemoryKinds>;
  api->PJRT_Executable_Serialize = kGuarded<Serialize>;
  api->PJRT_Executable_GetCompileOptions = kGuarded<GetCompileOptions>;
}

}  // namespace ipu
