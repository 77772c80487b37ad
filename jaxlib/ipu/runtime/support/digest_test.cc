#include "jaxlib/ipu/runtime/support/digest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace ipu {
namespace {

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<uint8_t>(byte));
    text += digits;
  }
  return text;
}

// Bytes 0, 1, ..., 250, 0, 1, ...
std::string Message(size_t size) {
  std::string message(size, '\0');
  for (size_t i = 0; i < size; ++i) message[i] = static_cast<char>(i % 251);
  return message;
}

std::string Of(std::string_view message) {
  Digest digest;
  digest.Add(message);
  return Hex(digest.Finish());
}

// Values of Python's hashlib.blake2b(..., digest_size=32).
TEST(DigestTest, MatchesOtherImplementations) {
  EXPECT_EQ(Of(""),
            "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(Of("abc"),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_EQ(Of(Message(128)),
            "c3582f71ebb2be66fa5dd750f80baae97554f3b015663c8be377cfcb2488c1d1");
  EXPECT_EQ(Of(Message(129)),
            "f7f3c46ba2564ff4c4c162da1f5b605f9f1c4aa6a20652a9f9a337c1a2f5b9c9");
  EXPECT_EQ(Of(Message(1000)),
            "b372d0608f720c8c3dd41e9c8eecb10143b41abe520b616607e754bf79c08331");
}

TEST(DigestTest, PartsMakeOneMessage) {
  const std::string message = Message(400);
  for (size_t first = 0; first <= message.size(); first += 3) {
    for (size_t second = first; second <= message.size(); second += 41) {
      Digest digest;
      digest.Add({message.data(), first});
      digest.Add({message.data() + first, second - first});
      digest.Add({message.data() + second, message.size() - second});
      EXPECT_EQ(Hex(digest.Finish()), Of(message)) << first << ' ' << second;
    }
  }
}

}  // namespace
}  // namespace ipu
