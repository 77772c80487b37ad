// PJRT_Memory: a device's SRAM (kind "device"), or host memory that its
// programs stream from and to (kind "pinned_host").

#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {
namespace {

PJRT_Error* Id(PJRT_Memory_Id_Args* args) {
  const PJRT_Memory& memory = *args->memory;
  const auto kinds = static_cast<int>(std::size(memory.device->memories));
  args->id = memory.device->description.id * kinds + memory.kind_id;
  return nullptr;
}

PJRT_Error* Kind(PJRT_Memory_Kind_Args* args) {
  args->kind = args->memory->kind.data();
  args->kind_size = args->memory->kind.size();
  return nullptr;
}

PJRT_Error* KindId(PJRT_Memory_Kind_Id_Args* args) {
  args->kind_id = args->memory->kind_id;
  return nullptr;
}

PJRT_Error* DebugString(PJRT_Memory_DebugString_Args* args) {
  args->debug_string = args->memory->text.data();
  args->debug_string_size = args->memory->text.size();
  return nullptr;
}

PJRT_Error* ToString(PJRT_Memory_ToString_Args* args) {
  args->to_string = args->memory->text.data();
  args->to_string_size = args->memory->text.size();
  return nullptr;
}

PJRT_Error* AddressableByDevices(PJRT_Memory_AddressableByDevices_Args* args) {
  args->devices = args->memory->device->addressed_by;
  args->num_devices = 1;
  return nullptr;
}

}  // namespace

void AddMemoryFunctions(PJRT_Api* api) {
  api->PJRT_Memory_Id = kGuarded<Id>;
  api->PJRT_Memory_Kind = kGuarded<Kind>;
  api->PJRT_Memory_Kind_Id = kGuarded<KindId>;
  api->PJRT_Memory_DebugString = kGuarded<DebugString>;
  api->PJRT_Memory_ToString = kGuarded<ToString>;
  api->PJRT_Memory_AddressableByDevices = kGuarded<AddressableByDevices>;
}

}  // namespace ipu
