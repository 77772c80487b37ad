// What the plugin itself needs of the compile options JAX sends: a serialised
// CompileOptionsProto. The compiler gets the bytes and reads the rest.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

struct CompileOptions {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  // The device that JAX assigned; none leaves the choice to the client.
  std::optional<int64_t> device_id;
  // The options without their device, in an order of their own: equal bytes
  // for the same compilation, wherever it is to run.
  std::string portable;
};

StatusOr<CompileOptions> ParseCompileOptions(std::string_view bytes);

// A serialised DeviceAssignmentProto for one replica of one partition.
std::string SerializeDeviceAssignment(int64_t device_id);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_
