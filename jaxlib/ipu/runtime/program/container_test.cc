// The reader: what it accepts, and how it rejects everything else.

#include "jaxlib/ipu/runtime/program/container.h"

#include <string>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"
#include "jaxlib/ipu/runtime/support/crc32.h"

namespace ipu::program {
namespace {

Builder Example() {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {2, 3});
  const uint32_t c = b.Constant<float>(DType::kF32, {2}, {1, 2});
  const uint32_t y = b.Result(DType::kF32, {2, 3});
  b.program.steps = {Builder::CopyOf({b.Whole(x, y)}),
                     {Repeat{3, {Builder::Pick(c, c, c)}, 0}}};
  b.program.cost_analysis = {{"flops", 12.5}};
  return b;
}

TEST(Crc32, MatchesZlib) {
  const std::string check = "123456789";
  const auto* p = reinterpret_cast<const uint8_t*>(check.data());
  EXPECT_EQ(Crc32({p, check.size()}), 0xCBF43926u);
  EXPECT_EQ(Crc32({p, size_t{0}}), 0u);
}

TEST(Read, RoundTrips) {
  const Builder b = Example();
  const std::vector<uint8_t> bytes = Encode(b.program, b.constants);
  StatusOr<Contents> contents = Read(bytes);
  ASSERT_TRUE(contents.ok()) << contents.status().message();
  EXPECT_EQ(contents->program.name, "test");
  EXPECT_EQ(contents->program.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(contents->program.cost_analysis[0].value, 12.5);
  EXPECT_EQ(contents->constants.size(), b.constants.size());
  const auto* repeat = std::get_if<Repeat>(&contents->program.steps[1].value);
  ASSERT_NE(repeat, nullptr);
  EXPECT_EQ(repeat->count, 3u);
  EXPECT_EQ(Encode(contents->program, b.constants), bytes);
}

TEST(Read, TruncationIsDataLoss) {
  const Builder b = Example();
  const std::vector<uint8_t> bytes = Encode(b.program, b.constants);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(Read(std::span(bytes).first(n)).status().code(), Code::kDataLoss);
  }
}

TEST(Read, AnyCorruptedByteIsDetected) {
  const Builder b = Example();
  const std::vector<uint8_t> bytes = Encode(b.program, b.constants);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> bent = bytes;
    bent[i] ^= 0x10;
    const bool names_format = (i >= 8 && i < 12) || (i >= 16 && i < 24);
    EXPECT_EQ(Read(bent).status().code(),
              names_format ? Code::kInvalidArgument : Code::kDataLoss)
        << "byte " << i;
  }
}

TEST(Read, ImpossiblyLargeCountsAreDataLoss) {
  const Builder b = Example();
  std::vector<uint8_t> bytes = Encode(b.program, b.constants);
  const uint32_t huge = 0xffffffff;
  std::memcpy(&bytes[48], &huge, sizeof huge);  // the length of the name
  FixChecksum(bytes);
  EXPECT_EQ(Read(bytes).status().code(), Code::kDataLoss);
}

TEST(Read, DeepNestingIsDataLoss) {
  Builder b = Example();
  for (int depth = 0; depth < 300; ++depth) {
    Repeat outer{1, std::move(b.program.steps), 0};
    b.program.steps.clear();
    b.program.steps.push_back({std::move(outer)});
  }
  EXPECT_EQ(Read(Encode(b.program, b.constants)).status().code(),
            Code::kDataLoss);
}

}  // namespace
}  // namespace ipu::program
