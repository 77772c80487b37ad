// BLAKE2b with a result of 256 bits (RFC 7693): names contents by so few bytes
// that nobody can find two of the same name. In software it is about three
// times as fast as SHA-256.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_DIGEST_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ipu {

class Digest {
 public:
  Digest();
  // Appends bytes to the message.
  void Add(std::string_view bytes);
  // The 32 bytes; to be called once.
  std::string Finish();

 private:
  static constexpr size_t kBlock = 128;

  void Compress(const char* block, bool last);

  std::array<uint64_t, 8> state_;
  std::array<char, kBlock> rest_;  // what is not compressed yet
  size_t rest_bytes_ = 0;
  uint64_t compressed_ = 0;  // bytes
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_DIGEST_H_
