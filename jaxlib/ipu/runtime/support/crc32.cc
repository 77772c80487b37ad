// Uses slicing by eight: eight tables let each step process eight bytes
// (M. Kounavis and F. Berry, "A systematic approach to building high
// performance, software-based, CRC generators", ISCC 2005).

#include "jaxlib/ipu/runtime/support/crc32.h"

#include <array>
#include <cstring>

namespace ipu {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;  // bit-reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b on the checksum when k bytes follow it.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32(std::span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = ~uint32_t{0};
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) {
      crc ^= kTables[7 - k][word >> 8 * k & 0xff];
    }
  }
  for (; left > 0; --left, ++p) {
    crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 0xff];
  }
  return ~crc;
}

}  // namespace ipu
