// CRC-32 as zlib and IEEE 802.3 define it.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_CRC32_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_CRC32_H_

#include <cstdint>
#include <span>

namespace ipu {

uint32_t Crc32(std::span<const uint8_t> bytes);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_CRC32_H_
