// PJRT_Client: the IPUs of this process and the compiler they share.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_
#define JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/compiler.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/topology.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

// The options a client is created with. jaxlib/ipu/plugin.py computes them from
// flags; ParseClientOptions rejects unknown names and missing values.
struct ClientOptions {
  Machine machine;
  std::vector<int64_t> hardware_ids;  // one per device
  // Part of JAX's compilation cache keys, so it must change whenever the
  // compiler or the machine changes.
  std::string platform_version;
  // Passed to the compiler with every module.
  std::string compiler_machine;
};

StatusOr<ClientOptions> ParseClientOptions(const PJRT_NamedValue* options,
                                           size_t count);

void AddClientFunctions(PJRT_Api* api);

}  // namespace ipu

struct PJRT_Client {
  PJRT_Client(ipu::ClientOptions options, ipu::EngineFactory factory);

  // Returns null if no device has this id.
  PJRT_Device* FindDevice(int64_t id) const;

  const std::string platform_version;
  const uint32_t fork_generation;
  std::vector<std::unique_ptr<PJRT_Device>> owned_devices;
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_Memory*> memories;
  PJRT_TopologyDescription topology;
  ipu::Compiler compiler;
};

#endif  // JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_
