#include "jaxlib/ipu/runtime/pjrt/api.h"

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/client.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "jaxlib/ipu/runtime/pjrt/layouts.h"
#include "jaxlib/ipu/runtime/pjrt/profiler_api.h"
#include "jaxlib/ipu/runtime/pjrt/topology.h"

namespace ipu {
namespace {

ApiTable MakeTable() {
  ApiTable table = {};
  PJRT_Api& api = table.api;
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  // JAX gates features on this version, so it must match the header's.
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  AddErrorFunctions(&api);
  AddPluginFunctions(&api);
  AddEventFunctions(&api);
  AddClientFunctions(&api);
  AddDeviceFunctions(&api);
  AddMemoryFunctions(&api);
  AddTopologyFunctions(&api);
  AddExecutableFunctions(&api);
  AddLoadedExecutableFunctions(&api);
  AddOptimizedProgramFunctions(&api);
  AddExecuteFunctions(&api);
  AddBufferFunctions(&api);
  AddTransferFunctions(&api);
  AddCopyFunctions(&api);
  AddLayoutsExtension(&api);
  AddProfilerExtension(&api);
  AddUnsupportedFunctions(&api);
  AddLaterFunctions(&table);
  return table;
}

}  // namespace
}  // namespace ipu

const PJRT_Api* GetPjrtApi() {
  static const ipu::ApiTable table = ipu::MakeTable();
  return &table.api;
}
