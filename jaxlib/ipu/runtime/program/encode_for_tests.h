// Writes programs, for tests: what container.py does, for any records of the
// schema. Fields are found by taking the structs apart, so that nothing has to
// be kept in step.

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
    if constexpr (std::is_arithmetic_v<T>) {
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
      PutFields(value);
    }
  }

  std::vector<uint8_t> bytes;

 private:
  struct Anything {
    template <typename T>
    operator T() const;  // NOLINT
  };

  template <typename T, size_t... kI>
  static constexpr bool HasFields(std::index_sequence<kI...>) {
    return requires { T{((void)kI, Anything{})...}; };
  }
  template <typename T, size_t kN = 20>
  static constexpr size_t CountFields() {
    if constexpr (HasFields<T>(std::make_index_sequence<kN>())) {
      return kN;
    } else {
      return CountFields<T, kN - 1>();
    }
  }

  template <typename... Fields>
  void PutAll(const Fields&... fields) {
    (Put(fields), ...);
  }

  template <typename T>
  void PutFields(const T& v) {
    constexpr size_t kN = CountFields<T>();
    if constexpr (kN == 1) {
      const auto& [a] = v;
      PutAll(a);
    } else if constexpr (kN == 2) {
      const auto& [a, b] = v;
      PutAll(a, b);
    } else if constexpr (kN == 3) {
      const auto& [a, b, c] = v;
      PutAll(a, b, c);
    } else if constexpr (kN == 4) {
      const auto& [a, b, c, d] = v;
      PutAll(a, b, c, d);
    } else if constexpr (kN == 5) {
      const auto& [a, b, c, d, e] = v;
      PutAll(a, b, c, d, e);
    } else if constexpr (kN == 6) {
      const auto& [a, b, c, d, e, f] = v;
      PutAll(a, b, c, d, e, f);
    } else if constexpr (kN == 7) {
      const auto& [a, b, c, d, e, f, g] = v;
      PutAll(a, b, c, d, e, f, g);
    } else if constexpr (kN == 8) {
      const auto& [a, b, c, d, e, f, g, h] = v;
      PutAll(a, b, c, d, e, f, g, h);
    } else if constexpr (kN == 10) {
      const auto& [a, b, c, d, e, f, g, h, i, j] = v;
      PutAll(a, b, c, d, e, f, g, h, i, j);
    } else {
      static_assert(kN == 15, "a record with another number of fields");
      const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = v;
      PutAll(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
    }
  }
};

// Puts the checksum of a program's bytes in its place.
inline void FixChecksum(std::vector<uint8_t>& bytes) {
  const uint32_t crc = Crc32(std::span(bytes).subspan(16));
  std::memcpy(&bytes[12], &crc, sizeof crc);
}

// The bytes of a program and its constants, as container.write makes them.
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
