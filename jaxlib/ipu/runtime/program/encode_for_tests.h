// Serialises programs, for tests: like container.py, but for any records of the
// schema.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_ENCODE_FOR_TESTS_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_ENCODE_FOR_TESTS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/crc32.h"

namespace ipu::program {

class Encoder {
 public:
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      const auto* p = reinterpret_cast<const uint8_t*>(&value);
      bytes.insert(bytes.end(), p, p + sizeof value);
    } else if constexpr (requires { value.size(); }) {
      Put(static_cast<uint32_t>(value.size()));
      for (const auto& v : value) Put(v);
    } else if constexpr (requires {
                           std::variant_size<decltype(value.value)>();
                         }) {
      Put(static_cast<uint8_t>(value.value.index()));
      std::visit([this](const auto& v) { Put(v); }, value.value);
    } else {
      T::Each(value, [this](const auto& field) {
        Put(field);
        return true;
      });
    }
  }

  std::vector<uint8_t> bytes;
};

// Updates the checksum of a serialised program.
inline void FixChecksum(std::vector<uint8_t>& bytes) {
  const uint32_t crc = Crc32(std::span(bytes).subspan(16));
  std::memcpy(&bytes[12], &crc, sizeof crc);
}

// Serialises a program and its constants, as container.write does.
inline std::vector<uint8_t> Encode(const Program& program,
                                   const std::vector<uint8_t>& constants = {}) {
  Encoder body;
  body.Put(program);
  const uint64_t end = 48 + body.bytes.size();
  const uint64_t start = (end + kAlignment - 1) / kAlignment * kAlignment;
  Encoder out;
  for (char c : {'J', 'A', 'X', 'I', 'P', 'U', '\0', '\n'}) out.Put(c);
  out.Put(kFormatVersion);
  out.Put(uint32_t{0});
  out.Put(kFingerprint);
  out.Put(uint64_t{body.bytes.size()});
  out.Put(start);
  out.Put(uint64_t{constants.size()});
  out.bytes.insert(out.bytes.end(), body.bytes.begin(), body.bytes.end());
  out.bytes.resize(start);
  out.bytes.insert(out.bytes.end(), constants.begin(), constants.end());
  FixChecksum(out.bytes);
  return out.bytes;
}

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_ENCODE_FOR_TESTS_H_
