#include "jaxlib/ipu/runtime/pjrt/client.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

PJRT_Error* Create(PJRT_Client_Create_Args* args) {
  StatusOr<ClientOptions> options =
      ParseClientOptions(args->create_options, args->num_options);
  IPU_PJRT_RETURN_IF_ERROR(options.status());
  args->client = new PJRT_Client(std::move(*options),
                                 [] { return MakeModelEngine(/*threads=*/0); });
  return nullptr;
}

// Called after Python has shut down: waits for the running work and cancels the
// rest.
PJRT_Error* Destroy(PJRT_Client_Destroy_Args* args) {
  // In a forked child the worker threads do not exist and their locks may be
  // held forever, so cleanup is left to process exit.
  if (CheckNotForked(args->client->fork_generation).ok()) delete args->client;
  return nullptr;
}

PJRT_Error* PlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = kPlatformName.data();
  args->platform_name_size = kPlatformName.size();
  return nullptr;
}

PJRT_Error* PlatformVersion(PJRT_Client_PlatformVersion_Args* args) {
  args->platform_version = args->client->platform_version.data();
  args->platform_version_size = args->client->platform_version.size();
  return nullptr;
}

PJRT_Error* ProcessIndex(PJRT_Client_ProcessIndex_Args* args) {
  args->process_index = args->client->process_index;
  return nullptr;
}

PJRT_Error* Topology(PJRT_Client_TopologyDescription_Args* args) {
  args->topology = &args->client->topology;
  return nullptr;
}

PJRT_Error* Devices(PJRT_Client_Devices_Args* args) {
  args->devices = args->client->devices.data();
  args->num_devices = args->client->devices.size();
  return nullptr;
}

PJRT_Error* AddressableDevices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = args->client->local_devices.data();
  args->num_addressable_devices = args->client->local_devices.size();
  return nullptr;
}

PJRT_Error* AddressableMemories(PJRT_Client_AddressableMemories_Args* args) {
  args->addressable_memories = args->client->memories.data();
  args->num_addressable_memories = args->client->memories.size();
  return nullptr;
}

PJRT_Error* LookupDevice(PJRT_Client_LookupDevice_Args* args) {
  args->device = args->client->FindDevice(args->id);
  if (args->device != nullptr) return nullptr;
  return MakeError(InvalidArgument(
      "no IPU has id " + std::to_string(args->id) + "; the number of IPUs is " +
      std::to_string(args->client->devices.size())));
}

PJRT_Error* LookupAddressableDevice(
    PJRT_Client_LookupAddressableDevice_Args* args) {
  for (PJRT_Device* device : args->client->local_devices) {
    if (device->hardware_id == args->local_hardware_id) {
      args->addressable_device = device;
      return nullptr;
    }
  }
  return MakeError(InvalidArgument("no IPU has local hardware id " +
                                   std::to_string(args->local_hardware_id)));
}

// Row-major [replica][partition], devices in ascending order; those of this
// process, if they suffice.
PJRT_Error* DefaultDeviceAssignment(
    PJRT_Client_DefaultDeviceAssignment_Args* args) {
  const size_t wanted =
      static_cast<size_t>(args->num_replicas) * args->num_partitions;
  const auto& local = args->client->local_devices;
  const auto& devices = wanted <= local.size() ? local : args->client->devices;
  if (wanted > devices.size() || wanted > args->default_assignment_size) {
    return MakeError(InvalidArgument(
        std::to_string(args->num_replicas) + " replicas of " +
        std::to_string(args->num_partitions) + " partitions need " +
        std::to_string(wanted) + " IPUs, but only " +
        std::to_string(args->client->devices.size()) + " are available"));
  }
  for (size_t i = 0; i < wanted; ++i) {
    args->default_assignment[i] = devices[i]->description.id;
  }
  return nullptr;
}

// jaxlib tells which processes live and ends this one if it has to; programs
// learn from the transport that another does not answer (processes.h).
PJRT_Error* UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args*) {
  return nullptr;
}

Status CheckProcesses(const ClientOptions& options) {
  const std::vector<int64_t>& counts = options.device_counts;
  if (options.num_nodes == 1 && counts.empty()) return Status();
  const int64_t own = options.node_id;
  if (own < 0 || own >= options.num_nodes ||
      counts.size() != static_cast<size_t>(options.num_nodes) ||
      *std::min_element(counts.begin(), counts.end()) < 1 ||
      counts[own] != static_cast<int64_t>(options.hardware_ids.size())) {
    return InvalidArgument(
        "client option device_counts must have the number of IPUs of each of "
        "the " +
        std::to_string(options.num_nodes) +
        " processes, of which this is number " + std::to_string(own) +
        ": create the client through jaxlib.ipu.plugin");
  }
  return Status();
}

}  // namespace

StatusOr<ClientOptions> ParseClientOptions(const PJRT_NamedValue* options,
                                           size_t count) {
  ClientOptions result;
  Machine& machine = result.machine;
  LinkCosts copies{};
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& option = options[i];
    const std::string_view name(option.name, option.name_size);
    Status status;
    if (name == "hardware_ids") {
      status = ReadOption(option, &result.hardware_ids);
    } else if (name == "node_id") {
      status = ReadOption(option, &result.node_id);
    } else if (name == "num_nodes") {
      status = ReadOption(option, &result.num_nodes);
    } else if (name == "partition_index") {
      // Of networks that are faster in parts, which IPUs do not have.
    } else if (name == "device_counts") {
      status = ReadOption(option, &result.device_counts);
    } else if (name == "num_tiles") {
      status = ReadOption(option, &machine.num_tiles);
    } else if (name == "bytes_per_tile") {
      status = ReadOption(option, &machine.bytes_per_tile);
    } else if (name == "clock_hz") {
      status = ReadOption(option, &machine.clock_hz);
    } else if (name == "version") {
      status = ReadOption(option, &machine.version);
    } else if (name == "is_model") {
      status = ReadOption(option, &machine.is_model);
    } else if (name == "logs_cycles") {
      status = ReadOption(option, &machine.logs_cycles);
    } else if (name == "data_path_bytes") {
      status = ReadOption(option, &machine.data_path_bytes);
    } else if (name == "may_overflow") {
      status = ReadOption(option, &machine.may_overflow);
    } else if (name == "warns") {
      status = ReadOption(option, &machine.warns);
    } else if (name == "copy_latency_cycles") {
      status = ReadOption(option, &copies.latency_cycles);
    } else if (name == "copy_bytes_per_second") {
      status = ReadOption(option, &copies.bytes_per_second);
    } else if (name == "platform_version") {
      status = ReadOption(option, &result.platform_version);
    } else if (name == "compiler_machine") {
      status = ReadOption(option, &result.compiler_machine);
    } else {
      status = InvalidArgument(
          "unknown client option " + std::string(name) +
          "; known: hardware_ids, node_id, num_nodes, partition_index, "
          "device_counts, num_tiles, bytes_per_tile, clock_hz, "
          "version, is_model, logs_cycles, data_path_bytes, may_overflow, "
          "warns, copy_latency_cycles, copy_bytes_per_second, "
          "platform_version, compiler_machine");
    }
    IPU_RETURN_IF_ERROR(status);
  }
  if (result.hardware_ids.empty() || machine.num_tiles <= 0 ||
      machine.bytes_per_tile <= 0 || machine.clock_hz <= 0 ||
      machine.data_path_bytes <= 0) {
    return InvalidArgument(
        "client options hardware_ids, num_tiles, bytes_per_tile, clock_hz and "
        "data_path_bytes must be given and positive: create the client through "
        "jaxlib.ipu.plugin");
  }
  IPU_RETURN_IF_ERROR(CheckProcesses(result));
  copies.num_ipus = result.hardware_ids.size();
  if (!copies.latency_cycles.empty() || !copies.bytes_per_second.empty()) {
    const size_t pairs = copies.num_ipus * copies.num_ipus;
    if (copies.latency_cycles.size() != pairs ||
        copies.bytes_per_second.size() != pairs) {
      return InvalidArgument(
          "client options copy_latency_cycles and copy_bytes_per_second must "
          "have " +
          std::to_string(pairs) +
          " elements, one for each two IPUs: create the client through "
          "jaxlib.ipu.plugin");
    }
    machine.copies = std::make_shared<const LinkCosts>(std::move(copies));
  }
  if (!machine.is_model) {
    return Status(Code::kFailedPrecondition,
                  "client option is_model is false, but this libjaxipu.so was "
                  "built without the Poplar SDK and knows only the IPU model");
  }
  return result;
}

void AddClientFunctions(PJRT_Api* api) {
  api->PJRT_Client_Create = kGuarded<Create>;
  api->PJRT_Client_Destroy = kGuarded<Destroy>;
  api->PJRT_Client_PlatformName = kGuarded<PlatformName>;
  api->PJRT_Client_PlatformVersion = kGuarded<PlatformVersion>;
  api->PJRT_Client_ProcessIndex = kGuarded<ProcessIndex>;
  api->PJRT_Client_TopologyDescription = kGuarded<Topology>;
  api->PJRT_Client_Devices = kGuarded<Devices>;
  api->PJRT_Client_AddressableDevices = kGuarded<AddressableDevices>;
  api->PJRT_Client_AddressableMemories = kGuarded<AddressableMemories>;
  api->PJRT_Client_LookupDevice = kGuarded<LookupDevice>;
  api->PJRT_Client_LookupAddressableDevice = kGuarded<LookupAddressableDevice>;
  api->PJRT_Client_DefaultDeviceAssignment = kGuarded<DefaultDeviceAssignment>;
  api->PJRT_Client_UpdateGlobalProcessInfo = kGuarded<UpdateGlobalProcessInfo>;
}

}  // namespace ipu

PJRT_Client::PJRT_Client(ipu::ClientOptions options, ipu::EngineFactory factory)
    : platform_version(options.platform_version),
      fork_generation(ipu::ForkGeneration()),
      process_index(static_cast<int>(options.node_id)),
      compiler(options.compiler_machine) {
  const auto add = [&](const ipu::Place& place) {
    PJRT_Device* device = owned_devices
                              .emplace_back(std::make_unique<PJRT_Device>(
                                  place, options.machine, factory))
                              .get();
    devices.push_back(device);
    topology.devices.push_back(&device->description);
    if (!place.is_local) return;
    local_devices.push_back(device);
    memories.insert(memories.end(), std::begin(device->memories),
                    std::end(device->memories));
  };
  const auto local = static_cast<int64_t>(options.hardware_ids.size());
  std::vector<int64_t> counts = options.device_counts;
  if (counts.empty()) counts = {local};
  for (int process = 0; process < static_cast<int>(counts.size()); ++process) {
    const bool is_local = process == process_index;
    for (int i = 0; i < counts[process]; ++i) {
      add({.id = static_cast<int>(devices.size()),
           .local_id = i,
           .hardware_id =
               is_local ? static_cast<int>(options.hardware_ids[i]) : -1,
           .process = process,
           .is_local = is_local,
           .is_only_process = counts.size() == 1,
           .channels = &channels});
    }
  }
  topology.platform_version = platform_version;
  topology.serialized = platform_version;
  topology.attributes.Add("num_tiles", options.machine.num_tiles);
  topology.attributes.Add("version", options.machine.version);
}

PJRT_Device* PJRT_Client::FindDevice(int64_t id) const {
  const auto index = static_cast<size_t>(id);
  return index < devices.size() ? devices[index] : nullptr;
}
