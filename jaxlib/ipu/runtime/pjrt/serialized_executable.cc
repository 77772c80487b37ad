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
constexpr uint32_t kOptionsChecksumField = 4;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint32_t Checksum(std::string_view text) { return Crc32(Bytes(text)); }

}  // namespace

std::string SerializeExecutable(std::string_view options,
                                std::string_view program) {
  std::string bytes;
  bytes.reserve(options.size() + program.size() + 64);
  AppendBytesField(kMagicField, kMagic, &bytes);
  AppendBytesField(kOptionsField, options, &bytes);
  AppendVarintField(kOptionsChecksumField, Checksum(options), &bytes);
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
    } else if (reader.number() == kOptionsChecksumField) {
      checksum = reader.varint();
    } else if (reader.number() == kProgramField && reader.has_bytes()) {
      parts.program = Bytes(reader.bytes());
      complete = true;
    }
  }
  if (!reader.ok() || !known || !complete ||
      checksum != Checksum(parts.options)) {
    return DataLoss("these " + std::to_string(bytes.size()) +
                    " bytes are not a serialised IPU executable, or are "
                    "truncated or corrupted; clear JAX's compilation cache");
  }
  return parts;
}

}  // namespace ipu
