#include "jaxlib/ipu/runtime/pjrt/device.h"

#include <utility>

#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

// How many computations may wait in a device's queue: enough to hide the host's
// work, few enough that a loop that only dispatches holds little memory.
constexpr size_t kQueueCapacity = 32;

PJRT_Error* Id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = args->device_description->id;
  return nullptr;
}

PJRT_Error* ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = args->device_description->process_index;
  return nullptr;
}

PJRT_Error* Attributes(PJRT_DeviceDescription_Attributes_Args* args) {
  args->attributes = args->device_description->attributes.data();
  args->num_attributes = args->device_description->attributes.size();
  return nullptr;
}

PJRT_Error* Kind(PJRT_DeviceDescription_Kind_Args* args) {
  args->device_kind = args->device_description->kind.data();
  args->device_kind_size = args->device_description->kind.size();
  return nullptr;
}

PJRT_Error* DebugString(PJRT_DeviceDescription_DebugString_Args* args) {
  args->debug_string = args->device_description->text.data();
  args->debug_string_size = args->device_description->text.size();
  return nullptr;
}

PJRT_Error* ToString(PJRT_DeviceDescription_ToString_Args* args) {
  args->to_string = args->device_description->text.data();
  args->to_string_size = args->device_description->text.size();
  return nullptr;
}

PJRT_Error* GetDescription(PJRT_Device_GetDescription_Args* args) {
  args->device_description = &args->device->description;
  return nullptr;
}

PJRT_Error* IsAddressable(PJRT_Device_IsAddressable_Args* args) {
  args->is_addressable = args->device->is_local;
  return nullptr;
}

PJRT_Error* LocalHardwareId(PJRT_Device_LocalHardwareId_Args* args) {
  args->local_hardware_id = args->device->hardware_id;
  return nullptr;
}

PJRT_Error* AddressableMemories(PJRT_Device_AddressableMemories_Args* args) {
  args->memories = args->device->memories;
  args->num_memories = std::size(args->device->memories);
  return nullptr;
}

PJRT_Error* DefaultMemory(PJRT_Device_DefaultMemory_Args* args) {
  args->memory = &args->device->memory;
  return nullptr;
}

// SRAM summed over all tiles. The host memory that models it is not a property
// of the machine and is not reported. The caller does not zero the arguments,
// so unknown values must be marked as unset.
PJRT_Error* MemoryStats(PJRT_Device_MemoryStats_Args* args) {
  const Sram::Figures sram = args->device->sram.figures();
  args->bytes_in_use = sram.in_use;
  args->peak_bytes_in_use = sram.peak;
  args->peak_bytes_in_use_is_set = true;
  args->num_allocs = sram.count;
  args->num_allocs_is_set = true;
  args->largest_alloc_size = sram.largest;
  args->largest_alloc_size_is_set = true;
  args->bytes_limit = sram.limit;
  args->bytes_limit_is_set = true;
  args->bytes_reserved_is_set = false;
  args->peak_bytes_reserved_is_set = false;
  args->bytes_reservable_limit = sram.limit;
  args->bytes_reservable_limit_is_set = true;
  args->largest_free_block_bytes = sram.free;
  args->largest_free_block_bytes_is_set = true;
  args->pool_bytes_is_set = false;
  args->peak_pool_bytes_is_set = false;
  return nullptr;
}

}  // namespace

void AddDeviceFunctions(PJRT_Api* api) {
  api->PJRT_DeviceDescription_Id = kGuarded<Id>;
  api->PJRT_DeviceDescription_ProcessIndex = kGuarded<ProcessIndex>;
  api->PJRT_DeviceDescription_Attributes = kGuarded<Attributes>;
  api->PJRT_DeviceDescription_Kind = kGuarded<Kind>;
  api->PJRT_DeviceDescription_DebugString = kGuarded<DebugString>;
  api->PJRT_DeviceDescription_ToString = kGuarded<ToString>;
  api->PJRT_Device_GetDescription = kGuarded<GetDescription>;
  api->PJRT_Device_IsAddressable = kGuarded<IsAddressable>;
  api->PJRT_Device_LocalHardwareId = kGuarded<LocalHardwareId>;
  api->PJRT_Device_AddressableMemories = kGuarded<AddressableMemories>;
  api->PJRT_Device_DefaultMemory = kGuarded<DefaultMemory>;
  api->PJRT_Device_MemoryStats = kGuarded<MemoryStats>;
}

}  // namespace ipu

PJRT_DeviceDescription::PJRT_DeviceDescription(const ipu::Place& place,
                                               const ipu::Machine& machine)
    : id(place.id),
      process_index(place.process),
      kind((machine.is_model ? "IPU model " : "IPU ") + machine.version),
      text("IpuDevice(id=" + std::to_string(id) +
           (place.is_only_process
                ? ""
                : ", process_index=" + std::to_string(process_index)) +
           ", num_tiles=" + std::to_string(machine.num_tiles) +
           ", version=" + machine.version + ")") {
  attributes.Add("num_tiles", machine.num_tiles);
  attributes.Add("version", machine.version);
  attributes.Add("tile_clock_frequency", machine.clock_hz);
  attributes.Add("bytes_per_tile", machine.bytes_per_tile);
  // An integer, because jaxlib aborts the process on a boolean attribute.
  attributes.Add("is_ipu_model", int64_t{machine.is_model});
}

PJRT_Device::PJRT_Device(const ipu::Place& place, const ipu::Machine& machine,
                         ipu::EngineFactory factory)
    : is_local(place.is_local),
      local_id(place.local_id),
      channels(place.channels),
      hardware_id(place.hardware_id),
      fork_generation(ipu::ForkGeneration()),
      machine(machine),
      description(place, machine),
      sram(machine, description.text),
      last_run(place.id),
      feeds(place.id, description.text),
      memory{this, "SRAM of " + description.text, "device", 0, &sram},
      host_memory{this, "host memory of " + description.text, "pinned_host", 1},
      factory_(std::move(factory)),
      queue(ipu::kQueueCapacity) {}

ipu::Engine& PJRT_Device::engine() {
  std::call_once(engine_once_, [this] { engine_ = factory_(); });
  return *engine_;
}
