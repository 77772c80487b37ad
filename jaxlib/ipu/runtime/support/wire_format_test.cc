#include "jaxlib/ipu/runtime/support/wire_format.h"

#include <gtest/gtest.h>

#include <string>

namespace ipu {
namespace {

TEST(WireFormatTest, RoundTrips) {
  std::string message;
  AppendVarintField(1, 300, &message);
  AppendBytesField(200, "text", &message);
  AppendVarintField(3, UINT64_MAX, &message);

  WireReader reader(message);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.number(), 1);
  EXPECT_EQ(reader.varint(), 300);
  EXPECT_FALSE(reader.has_bytes());
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.number(), 200);
  EXPECT_EQ(reader.bytes(), "text");
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.varint(), UINT64_MAX);
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.ok());
}

TEST(WireFormatTest, ReadsTheSpecificationsExample) {
  // The example of the encoding's documentation: 150 in field 1.
  WireReader reader("\x08\x96\x01");
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.number(), 1);
  EXPECT_EQ(reader.varint(), 150);
}

TEST(WireFormatTest, FieldsCanBeCopied) {
  std::string message, copy;
  AppendVarintField(1, 7, &message);
  message += std::string("\x15\x01\x02\x03\x04", 5);  // field 2, 32 bits wide
  message += std::string("\x19\x01\x02\x03\x04\x05\x06\x07\x08", 9);
  AppendBytesField(4, "", &message);
  WireReader reader(message);
  while (reader.Next()) copy += reader.field();
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(copy, message);
}

TEST(WireFormatTest, MalformedMessagesEndWithAnError) {
  for (const std::string& bad : {std::string("\x08"),
                                 std::string("\x12\x05"
                                             "ab"),
                                 std::string("\x0b"), std::string("\x15\x01"),
                                 std::string(11, '\xff')}) {
    WireReader reader(bad);
    while (reader.Next()) {
    }
    EXPECT_FALSE(reader.ok());
  }
}

}  // namespace
}  // namespace ipu
