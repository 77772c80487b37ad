// PJRT_LoadedExecutable: compiles or deserialises a program and loads it on one
// device.

#include <string>
#include <string_view>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/compile_options.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/serialized_executable.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

StatusOr<PJRT_Device*> SelectDevice(PJRT_Client* client,
                                    const CompileOptions& options) {
  if (options.num_replicas != 1 || options.num_partitions != 1) {
    return Unimplemented(
        "a program of " + std::to_string(options.num_replicas) +
        " replicas and " + std::to_string(options.num_partitions) +
        " partitions: the IPU backend runs a computation on one IPU and cannot "
        "split it over several yet. Place arrays on one device with "
        "jax.device_put(x, jax.devices(\"ipu\")[i])");
  }
  const int64_t id = options.device_id.value_or(0);
  PJRT_Device* device = client->FindDevice(id);
  if (device == nullptr) {
    return InvalidArgument("the program is assigned to IPU " +
                           std::to_string(id) + ", but the number of IPUs is " +
                           std::to_string(client->devices.size()));
  }
  return device;
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  const PJRT_Program& program = *args->program;
  StatusOr<CompileOptions> options =
      ParseCompileOptions({args->compile_options, args->compile_options_size});
  IPU_PJRT_RETURN_IF_ERROR(options.status());
  StatusOr<PJRT_Device*> device = SelectDevice(args->client, *options);
  IPU_PJRT_RETURN_IF_ERROR(device.status());
  IPU_PJRT_RETURN_IF_ERROR(CheckNotForked((*device)->fork_generation));
  StatusOr<ProgramBytes> bytes = args->client->compiler.Compile(
      {program.code, program.code_size}, {program.format, program.format_size},
      options->portable);
  IPU_PJRT_RETURN_IF_ERROR(bytes.status());
  StatusOr<ExecutablePtr> executable = Executable::Load(
      std::move(*bytes), std::move(options->portable), *device);
  IPU_PJRT_RETURN_IF_ERROR(executable.status());
  args->executable = new PJRT_LoadedExecutable(std::move(*executable));
  return nullptr;
}

PJRT_Error* DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args* args) {
  StatusOr<ExecutableParts> parts = ParseExecutable(
      {args->serialized_executable, args->serialized_executable_size});
  IPU_PJRT_RETURN_IF_ERROR(parts.status());
  // Only the options that come with the call name a device; stored ones do not.
  std::string_view options_bytes = parts->options;
  if (args->overridden_serialized_compile_options != nullptr) {
    options_bytes = {args->overridden_serialized_compile_options,
                     args->overridden_serialized_compile_options_size};
  }
  StatusOr<CompileOptions> options = ParseCompileOptions(options_bytes);
  IPU_PJRT_RETURN_IF_ERROR(options.status());
  StatusOr<PJRT_Device*> device = SelectDevice(args->client, *options);
  IPU_PJRT_RETURN_IF_ERROR(device.status());
  StatusOr<ExecutablePtr> executable =
      Executable::Load(AlignedBytes::Copy(parts->program),
                       std::move(options->portable), *device);
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
  args->addressable_devices = args->executable->devices;
  args->num_addressable_devices = 1;
  return nullptr;
}

PJRT_Error* GetDeviceAssignment(
    PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  auto* assignment = new PJRT_DeviceAssignmentSerialized{
      SerializeDeviceAssignment(args->executable->devices[0]->description.id)};
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
