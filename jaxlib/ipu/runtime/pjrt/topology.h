// PJRT_TopologyDescription: the devices and their attributes, without the means
// to run anything on them.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_TOPOLOGY_H_
#define JAXLIB_IPU_RUNTIME_PJRT_TOPOLOGY_H_

#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/named_values.h"
#include "xla/pjrt/c/pjrt_c_api.h"

struct PJRT_TopologyDescription {
  std::string platform_version;
  std::vector<PJRT_DeviceDescription*> devices;  // owned by the client
  ipu::NamedValues attributes;
  // Identifies the machine; part of JAX's compilation cache keys.
  std::string serialized;
};

namespace ipu {

inline constexpr std::string_view kPlatformName = "ipu";

void AddTopologyFunctions(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_TOPOLOGY_H_
