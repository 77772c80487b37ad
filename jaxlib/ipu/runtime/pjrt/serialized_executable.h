// The format that JAX's compilation cache and serialize_executable store: the
// compile options, the devices and the program as fields in the protocol buffer
// wire format.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_SERIALIZED_EXECUTABLE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_SERIALIZED_EXECUTABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"

// PJRT frees each of these through its own deleter.
struct PJRT_SerializedExecutable {
  const std::string bytes;
};
struct PJRT_SerializedCompileOptions {
  const std::string bytes;
};
struct PJRT_DeviceAssignmentSerialized {
  const std::string bytes;
};

namespace ipu {

struct ExecutableParts {
  std::string options;               // without a device
  std::vector<int64_t> device_ids;   // of the partitions, in their order
  std::span<const uint8_t> program;  // within the bytes that were parsed
};

std::string SerializeExecutable(std::string_view options,
                                std::string_view program,
                                std::span<const int64_t> device_ids = {});

// DATA_LOSS for bytes that were not written by SerializeExecutable.
StatusOr<ExecutableParts> ParseExecutable(std::string_view bytes);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_SERIALIZED_EXECUTABLE_H_
