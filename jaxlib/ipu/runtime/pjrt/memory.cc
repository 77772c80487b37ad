// PJRT_Memory: a device's SRAM, of kind "device".

#include <string_view>

#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {
namespace {

constexpr std::string_view kKind = "device";

PJRT_Error* Id(PJRT_Memory_Id_Args* args) {
  args->id = args->memory->device->description.id;
  return nullptr;
}

PJRT_Error* Kind(PJRT_Memory_Kind_Args* args) {
  args->kind = kKind.data();
  args->kind_size = kKind.size();
  return nullptr;
}

PJRT_Error* KindId(PJRT_Memory_Kind_Id_Args* args) {
  args->kind_id = 0;
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
  api->PJRT_Memory_Id = Id;
  api->PJRT_Memory_Kind = Kind;
  api->PJRT_Memory_Kind_Id = KindId;
  api->PJRT_Memory_DebugString = DebugString;
  api->PJRT_Memory_ToString = ToString;
  api->PJRT_Memory_AddressableByDevices = AddressableByDevices;
}

}  // namespace ipu
