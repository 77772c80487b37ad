#include "jaxlib/ipu/runtime/support/wire_format.h"

#include <bit>

namespace ipu {

bool WireReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return false;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::Next() {
  if (!ok_ || rest_.empty()) return false;
  const std::string_view start = rest_;
  bytes_ = {};
  varint_ = 0;
  uint64_t tag, length = 0;
  ok_ = ReadVarint(&tag);
  number_ = static_cast<uint32_t>(tag >> 3);
  wire_type_ = static_cast<uint32_t>(tag & 7);
  switch (wire_type_) {
    case 0:
      ok_ = ok_ && ReadVarint(&varint_);
      break;
    case 1:
      length = 8;
      break;
    case 2:
      ok_ = ok_ && ReadVarint(&length);
      break;
    case 5:
      length = 4;
      break;
    default:
      ok_ = false;
  }
  ok_ = ok_ && length <= rest_.size();
  if (!ok_) return false;
  bytes_ = rest_.substr(0, length);
  rest_.remove_prefix(length);
  field_ = start.substr(0, start.size() - rest_.size());
  return true;
}

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendVarintField(uint32_t number, uint64_t value, std::string* out) {
  AppendVarint(uint64_t{number} << 3, out);
  AppendVarint(value, out);
}

void AppendDoubleField(uint32_t number, double value, std::string* out) {
  AppendVarint(uint64_t{number} << 3 | 1, out);
  auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) {
    out->push_back(static_cast<char>(bits & 0xff));
  }
}

void AppendBytesField(uint32_t number, std::string_view bytes,
                      std::string* out) {
  AppendVarint(uint64_t{number} << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

}  // namespace ipu
