// PJRT_Client: the IPUs of all processes, and the compiler that those of this
// process share.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_
#define JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/compiler.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/topology.h"
#include "jaxlib/ipu/runtime/pjrt/transport.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

// The options a client is created with. jaxlib/ipu/plugin.py computes them from
// flags; ParseClientOptions rejects unknown names and missing values.
struct ClientOptions {
  Machine machine;
  std::vector<int64_t> hardware_ids;  // one per device of this process
  // Of this process among those of jax.distributed; jaxlib gives both.
  int64_t node_id = 0;
  int64_t num_nodes = 1;
  // How many devices each process has; empty: there is only this one.
  std::vector<int64_t> device_counts;
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
  const int process_index;
  ipu::Channels channels;
  std::vector<std::unique_ptr<PJRT_Device>> owned_devices;
  std::vector<PJRT_Device*> devices;  // of all processes, by id
  // Of this process.
  std::vector<PJRT_Device*> local_devices;
  std::vector<PJRT_Memory*> memories;
  PJRT_TopologyDescription topology;
  ipu::Compiler compiler;
};

#endif  // JAXLIB_IPU_RUNTIME_PJRT_CLIENT_H_
