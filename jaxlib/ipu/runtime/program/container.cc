#include "jaxlib/ipu/runtime/program/container.h"

#include <bit>
#include <cstring>
#include <exception>
#include <string>

#include "jaxlib/ipu/runtime/support/crc32.h"

namespace ipu::program {
namespace {

static_assert(std::endian::native == std::endian::little,
              "programs are little-endian and read without conversion");

// The header as stored, without padding between the fields.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t crc;
  uint64_t fingerprint;
  uint64_t program_bytes;
  uint64_t constants_start;
  uint64_t constants_bytes;
};
static_assert(sizeof(Header) == 48);

constexpr char kMagic[8] = {'J', 'A', 'X', 'I', 'P', 'U', '\0', '\n'};
constexpr size_t kChecksummedFrom = 16;

Status Corrupt(const std::string& how) {
  return DataLoss("corrupt IPU program: " + how);
}

std::string Hex(uint64_t value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
  } while (value >>= 4);
  return "0x" + digits;
}

}  // namespace

StatusOr<Contents> Read(std::span<const uint8_t> bytes) {
  Header header;
  if (bytes.size() < sizeof header) {
    return DataLoss("not an IPU program: " + std::to_string(bytes.size()) +
                    " bytes are fewer than the " +
                    std::to_string(sizeof header) + " of a header");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return DataLoss(
        "not an IPU program: it does not start with the magic bytes JAXIPU");
  }
  if (header.version != kFormatVersion || header.fingerprint != kFingerprint) {
    return InvalidArgument(
        "IPU program of format " + std::to_string(header.version) +
        " (schema " + Hex(header.fingerprint) +
        "), but this engine supports format " + std::to_string(kFormatVersion) +
        " (schema " + Hex(kFingerprint) + "): compile it again");
  }
  if (Crc32(bytes.subspan(kChecksummedFrom)) != header.crc) {
    return Corrupt("its checksum does not match");
  }
  const uint64_t size = bytes.size();
  if (header.constants_start > size || header.constants_start % kAlignment ||
      header.constants_bytes != size - header.constants_start ||
      header.constants_start < sizeof header ||
      header.program_bytes > header.constants_start - sizeof header) {
    return Corrupt("its sections do not fit its " + std::to_string(size) +
                   " bytes");
  }
  Contents contents;
  contents.constants = bytes.subspan(header.constants_start);
  Reader reader(bytes.data() + sizeof header, header.program_bytes);
  try {
    if (!Decode(reader, contents.program)) {
      return Corrupt("its records are truncated or nested too deeply");
    }
  } catch (const std::exception& e) {  // counts that exceed the memory
    return Corrupt(std::string("its records do not fit into memory: ") +
                   e.what());
  }
  if (reader.left() != 0) {
    return Corrupt(std::to_string(reader.left()) +
                   " bytes are left over after its records");
  }
  return contents;
}

}  // namespace ipu::program
