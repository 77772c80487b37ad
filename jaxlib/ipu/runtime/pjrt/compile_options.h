// The part of JAX's compile options that the plugin itself needs.
//
// Takes a serialised CompileOptionsProto and reads the device assignment and
// the numbers of replicas and partitions. It interprets nothing else: the
// compiler receives the bytes and reads the rest.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

struct CompileOptions {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  // The devices that JAX assigned, one for each partition of the first replica;
  // if there are none, the client chooses.
  std::vector<int64_t> device_ids;
  // The options without the device, with fields in sorted order: the same
  // compilation has the same bytes on every device. Those of several devices
  // that are not in order say how they lie to each other.
  std::string portable;
};

StatusOr<CompileOptions> ParseCompileOptions(std::string_view bytes);

// A serialised DeviceAssignmentProto for one replica of some partitions.
std::string SerializeDeviceAssignment(std::span<const int64_t> device_ids);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_COMPILE_OPTIONS_H_
