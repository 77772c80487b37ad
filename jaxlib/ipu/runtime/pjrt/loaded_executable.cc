// PJRT_LoadedExecutable: compiles or deserialises a program and loads it for
// the devices of its partitions.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/compile_options.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/serialized_executable.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

using Devices = std::vector<PJRT_Device*>;

// The devices of a program's partitions, in their order.
StatusOr<Devices> SelectDevices(PJRT_Client* client,
                                const CompileOptions& options) {
  if (options.num_replicas != 1) {
    return Unimplemented(
        "a program of " + std::to_string(options.num_replicas) +
        " replicas: the IPU backend runs one replica of several partitions, as "
        "jax.jit, jax.shard_map and jax.pmap use them");
  }
  std::vector<int64_t> ids = options.device_ids;
  if (ids.empty()) {
    const size_t wanted = options.num_partitions;
    const Devices& devices = wanted <= client->local_devices.size()
                                 ? client->local_devices
                                 : client->devices;
    for (size_t i = 0; i < std::min(wanted, devices.size()); ++i) {
      ids.push_back(devices[i]->description.id);
    }
  }
  if (ids.size() != static_cast<size_t>(options.num_partitions)) {
    return InvalidArgument(
        "a program of " + std::to_string(options.num_partitions) +
        " partitions is assigned to " + std::to_string(ids.size()) +
        " IPUs of " + std::to_string(client->devices.size()));
  }
  Devices devices;
  for (const int64_t id : ids) {
    PJRT_Device* device = client->FindDevice(id);
    if (device == nullptr) {
      return InvalidArgument("the program is assigned to IPU " +
                             std::to_string(id) +
                             ", but the number of IPUs is " +
                             std::to_string(client->devices.size()));
    }
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return InvalidArgument(
          "two partitions of the program are assigned to "
          "IPU " +
          std::to_string(id));
    }
    devices.push_back(device);
  }
  if (std::none_of(devices.begin(), devices.end(),
                   [](const auto* device) { return device->is_local; })) {
    return Unimplemented(
        "a program that runs on no IPU of this process, number " +
        std::to_string(client->process_index) +
        ": it is assigned to those of other processes, the first of which is " +
        devices[0]->description.text + "; call it there only");
  }
  return devices;
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  const PJRT_Program& program = *args->program;
  StatusOr<CompileOptions> options =
      ParseCompileOptions({args->compile_options, args->compile_options_size});
  IPU_PJRT_RETURN_IF_ERROR(options.status());
  StatusOr<Devices> devices = SelectDevices(args->client, *options);
  IPU_PJRT_RETURN_IF_ERROR(devices.status());
  IPU_PJRT_RETURN_IF_ERROR(CheckNotForked(args->client->fork_generation));
  StatusOr<ProgramBytes> bytes = args->client->compiler.Compile(
      {program.code, program.code_size}, {program.format, program.format_size},
      options->portable);
  IPU_PJRT_RETURN_IF_ERROR(bytes.status());
  StatusOr<ExecutablePtr> executable = Executable::Load(
      std::move(*bytes), std::move(options->portable), std::move(*devices));
  IPU_PJRT_RETURN_IF_ERROR(executable.status());
  args->executable = new PJRT_LoadedExecutable(std::move(*executable));
  return nullptr;
}

PJRT_Error* DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args* args) {
  StatusOr<ExecutableParts> parts = ParseExecutable(
      {args->serialized_executable, args->serialized_executable_size});
  IPU_PJRT_RETURN_IF_ERROR(parts.status());
  std::string_view options_bytes = parts->options;
  if (args->overridden_serialized_compile_options != nullptr) {
    options_bytes = {args->overridden_serialized_compile_options,
                     args->overridden_serialized_compile_options_size};
  }
  StatusOr<CompileOptions> options = ParseCompileOptions(options_bytes);
  IPU_PJRT_RETURN_IF_ERROR(options.status());
  if (args->overridden_serialized_compile_options == nullptr) {
    // The devices that it was compiled for, or the first ones of a client that
    // has not all of them. Stored options say at most how they lie to each
    // other.
    options->device_ids = std::move(parts->device_ids);
    const auto is_here = [&](int64_t id) {
      return args->client->FindDevice(id) != nullptr;
    };
    if (!std::ranges::all_of(options->device_ids, is_here)) {
      options->device_ids.clear();
    }
  }
  StatusOr<Devices> devices = SelectDevices(args->client, *options);
  IPU_PJRT_RETURN_IF_ERROR(devices.status());
  StatusOr<ExecutablePtr> executable =
      Executable::Load(AlignedBytes::Copy(parts->program),
                       std::move(options->portable), std::move(*devices));
  IPU_PJRT_RETURN_IF_ERROR(executable.status());
  args->loaded_executable = new PJRT_LoadedExecutable(std::move(*executable));
  return nullptr;
}

PJRT_Error* DeletedExecutable() {
  return MakeError(InvalidArgument("the executable has been deleted"));
}

PJRT_Error* Destroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}

PJRT_Error* GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  ExecutablePtr executable = args->loaded_executable->Get();
  if (executable == nullptr) return DeletedExecutable();
  args->executable = new PJRT_Executable{std::move(executable)};
  return nullptr;
}

PJRT_Error* AddressableDevices(
    PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  args->addressable_devices = args->executable->devices.data();
  args->num_addressable_devices = args->executable->devices.size();
  return nullptr;
}

PJRT_Error* GetDeviceAssignment(
    PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  std::vector<int64_t> ids;
  for (const PJRT_Device* device : args->executable->all_devices) {
    ids.push_back(device->description.id);
  }
  auto* assignment =
      new PJRT_DeviceAssignmentSerialized{SerializeDeviceAssignment(ids)};
  args->serialized_bytes = assignment->bytes.data();
  args->serialized_bytes_size = assignment->bytes.size();
  args->serialized_device_assignment = assignment;
  args->serialized_device_assignment_deleter =
      +[](PJRT_DeviceAssignmentSerialized* serialized) { delete serialized; };
  return nullptr;
}

PJRT_Error* Delete(PJRT_LoadedExecutable_Delete_Args* args) {
  args->executable->Delete();
  return nullptr;
}

PJRT_Error* IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args* args) {
  args->is_deleted = args->executable->Get() == nullptr;
  return nullptr;
}

PJRT_Error* Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args* args) {
  const ExecutablePtr executable = args->executable->Get();
  if (executable == nullptr) return DeletedExecutable();
  args->executable_fingerprint = executable->fingerprint().data();
  args->executable_fingerprint_size = executable->fingerprint().size();
  return nullptr;
}

}  // namespace

void AddLoadedExecutableFunctions(PJRT_Api* api) {
  api->PJRT_Client_Compile = kGuarded<Compile>;
  api->PJRT_Executable_DeserializeAndLoad = kGuarded<DeserializeAndLoad>;
  api->PJRT_LoadedExecutable_Destroy = kGuarded<Destroy>;
  api->PJRT_LoadedExecutable_GetExecutable = kGuarded<GetExecutable>;
  api->PJRT_LoadedExecutable_AddressableDevices = kGuarded<AddressableDevices>;
  api->PJRT_LoadedExecutable_GetDeviceAssignment =
      kGuarded<GetDeviceAssignment>;
  api->PJRT_LoadedExecutable_Delete = kGuarded<Delete>;
  api->PJRT_LoadedExecutable_IsDeleted = kGuarded<IsDeleted>;
  api->PJRT_LoadedExecutable_Fingerprint = kGuarded<Fingerprint>;
}

}  // namespace ipu
