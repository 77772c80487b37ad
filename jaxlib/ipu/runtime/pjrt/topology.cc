#include "jaxlib/ipu/runtime/pjrt/topology.h"

#include "jaxlib/ipu/runtime/pjrt/error.h"

// The bytes belong to the topology, so there is nothing to free.
struct PJRT_SerializedTopology {};

namespace ipu {
namespace {

// The client owns the topology.
PJRT_Error* Destroy(PJRT_TopologyDescription_Destroy_Args* args) {
  return nullptr;
}

PJRT_Error* PlatformName(PJRT_TopologyDescription_PlatformName_Args* args) {
  args->platform_name = kPlatformName.data();
  args->platform_name_size = kPlatformName.size();
  return nullptr;
}

PJRT_Error* PlatformVersion(
    PJRT_TopologyDescription_PlatformVersion_Args* args) {
  args->platform_version = args->topology->platform_version.data();
  args->platform_version_size = args->topology->platform_version.size();
  return nullptr;
}

PJRT_Error* GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->descriptions = args->topology->devices.data();
  args->num_descriptions = args->topology->devices.size();
  return nullptr;
}

PJRT_Error* Serialize(PJRT_TopologyDescription_Serialize_Args* args) {
  static PJRT_SerializedTopology nothing;
  args->serialized_bytes = args->topology->serialized.data();
  args->serialized_bytes_size = args->topology->serialized.size();
  args->serialized_topology = &nothing;
  args->serialized_topology_deleter = +[](PJRT_SerializedTopology*) {};
  return nullptr;
}

PJRT_Error* Attributes(PJRT_TopologyDescription_Attributes_Args* args) {
  args->attributes = args->topology->attributes.data();
  args->num_attributes = args->topology->attributes.size();
  return nullptr;
}

}  // namespace

void AddTopologyFunctions(PJRT_Api* api) {
  api->PJRT_TopologyDescription_Destroy = kGuarded<Destroy>;
  api->PJRT_TopologyDescription_PlatformName = kGuarded<PlatformName>;
  api->PJRT_TopologyDescription_PlatformVersion = kGuarded<PlatformVersion>;
  api->PJRT_TopologyDescription_GetDeviceDescriptions =
      kGuarded<GetDeviceDescriptions>;
  api->PJRT_TopologyDescription_Serialize = kGuarded<Serialize>;
  api->PJRT_TopologyDescription_Attributes = kGuarded<Attributes>;
}

}  // namespace ipu
