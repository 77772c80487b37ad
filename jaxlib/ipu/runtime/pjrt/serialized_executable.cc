#include "jaxlib/ipu/runtime/pjrt/serialized_executable.h"

#include "jaxlib/ipu/runtime/support/crc32.h"
#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu {
namespace {

// Identifies the format; the digit is its version. The program inside has its
// own version and checksum.
constexpr std::string_view kMagic = "ipu-executable-1";

constexpr uint32_t kMagicField = 1;
constexpr uint32_t kOptionsField = 2;
constexpr uint32_t kProgramField = 3;
constexpr uint32_t kChecksumField = 4;
constexpr uint32_t kDeviceField = 5;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Of what has no checksum of its own.
uint32_t Checksum(std::string_view options, std::span<const int64_t> ids) {
  std::string checked(options);
  for (const int64_t id : ids) {
    AppendVarint(static_cast<uint64_t>(id), &checked);
  }
  return Crc32(Bytes(checked));
}

}  // namespace

std::string SerializeExecutable(std::string_view options,
                                std::string_view program,
                                std::span<const int64_t> device_ids) {
  std::string bytes;
  bytes.reserve(options.size() + program.size() + 64);
  AppendBytesField(kMagicField, kMagic, &bytes);
  AppendBytesField(kOptionsField, options, &bytes);
  AppendVarintField(kChecksumField, Checksum(options, device_ids), &bytes);
  for (const int64_t id : device_ids) {
    AppendVarintField(kDeviceField, static_cast<uint64_t>(id), &bytes);
  }
  AppendBytesField(kProgramField, program, &bytes);
  return bytes;
}

StatusOr<ExecutableParts> ParseExecutable(std::string_view bytes) {
  ExecutableParts parts;
  uint64_t checksum = 0;
  bool known = false, complete = false;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.number() == kMagicField) {
      known = reader.bytes() == kMagic;
    } else if (reader.number() == kOptionsField) {
      parts.options = reader.bytes();
    } else if (reader.number() == kChecksumField) {
      checksum = reader.varint();
    } else if (reader.number() == kDeviceField) {
      parts.device_ids.push_back(static_cast<int64_t>(reader.varint()));
    } else if (reader.number() == kProgramField && reader.has_bytes()) {
      parts.program = Bytes(reader.bytes());
      complete = true;
    }
  }
  if (!reader.ok() || !known || !complete ||
      checksum != Checksum(parts.options, parts.device_ids)) {
    return DataLoss("these " + std::to_string(bytes.size()) +
                    " bytes are not a serialised IPU executable, or are "
                    "truncated or corrupted; clear JAX's compilation cache");
  }
  return parts;
}

}  // namespace ipu
