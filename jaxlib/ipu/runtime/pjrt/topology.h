// PJRT_TopologyDescription: what there is, without the means to run on it.

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
  // Names the machine; JAX's compilation cache makes it part of its keys.
  std::string serialized;
};

namespace ipu {

inline constexpr std::string_view kPlatformName = "ipu";

void AddTopologyFunctions(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_TOPOLOGY_H_
