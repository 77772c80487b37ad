// What the validator rejects in steps that reach the host.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/validate_for_tests.h"

namespace ipu::program {
namespace {

TEST(Validate, HostCallbacks) {
  const auto refused = [](void (*change)(HostCallback&)) {
    return Refused([=](Program& p) { change(StepOf<HostCallback>(p, 5)); });
  };
  EXPECT_TRUE(refused([](auto& s) { s.operands[0].tensor = 99; }));
  EXPECT_TRUE(refused([](auto& s) { s.operands[0].tensor = 5; }));  // placed
  EXPECT_TRUE(refused([](auto& s) { s.operands[0].dims = {0, 0}; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dims = {0}; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dims = {0, 2}; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dtype = DType::kNone; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dtype = DType::kU8; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dtype = DType::kF64; }));
  EXPECT_TRUE(refused([](auto& s) { s.results[0].dtype = DType::kC64; }));
  EXPECT_TRUE(refused([](auto& s) { s.operands[1].dtype = DType::kC64; }));
  EXPECT_TRUE(refused([](auto& s) { s.aliases = {}; }));
  EXPECT_TRUE(refused([](auto& s) { s.aliases = {2}; }));
  EXPECT_TRUE(refused([](auto& s) { s.aliases = {1}; }));  // a different size
  EXPECT_FALSE(refused([](auto& s) { s.aliases = {-1}; }));
  EXPECT_TRUE(refused([](auto& s) { s.location = 99; }));
}

TEST(Validate, Attributes) {
  const auto refused = [](const std::vector<Attribute>& attributes) {
    return Refused([&](Program& p) {
      StepOf<HostCallback>(p, 5).attributes = attributes;
    });
  };
  const std::string eight(8, '\0');
  EXPECT_FALSE(refused({{"a", kScalar, DType::kU64, 1, eight}}));
  EXPECT_TRUE(refused({{"a", kScalar, DType::kU32, 1, eight}}));
  EXPECT_TRUE(refused({{"a", kScalar, DType::kU64, 2, eight + eight}}));
  EXPECT_TRUE(refused({{"a", kScalar, DType{200}, 1, eight}}));
  EXPECT_FALSE(refused({{"a", kArray, DType::kI16, 4, eight}}));
  EXPECT_TRUE(refused({{"a", kArray, DType::kI16, 5, eight}}));
  EXPECT_TRUE(refused({{"a", kArray, DType::kI16, 1u << 31, eight}}));
  EXPECT_FALSE(refused({{"a", kString, DType::kNone, 8, eight}}));
  EXPECT_TRUE(refused({{"a", kString, DType::kNone, 9, eight}}));
  EXPECT_TRUE(refused({{"a", 4, DType::kNone, 0, ""}}));
  const Attribute leaf = {"b", kString, DType::kNone, 0, ""};
  EXPECT_FALSE(refused({{"a", kDictionary, DType::kNone, 1, ""}, leaf}));
  EXPECT_TRUE(refused({{"a", kDictionary, DType::kNone, 2, ""}, leaf}));
  EXPECT_TRUE(refused({{"a", kDictionary, DType::kNone, ~0u, ""}, leaf}));
  EXPECT_TRUE(refused({{"a", kDictionary, DType::kNone, 2, ""},
                       {"c", kDictionary, DType::kNone, 1, ""},
                       leaf}));
  EXPECT_TRUE(refused({{"a", kDictionary, DType::kNone, 1, "x"}, leaf}));
  std::vector<Attribute> nested(20000, {"a", kDictionary, DType::kNone, 1, ""});
  nested.push_back(leaf);
  EXPECT_TRUE(refused(nested));
  nested.erase(nested.begin() + 900, nested.end() - 1);
  EXPECT_FALSE(refused(nested));
}

// As the example, with a buffer of the host, 6 f32[2,4,6], and one part of it,
// 7 f32[4,6]; 8 number u32[].
bool FeedRefused(Step step) {
  Builder b = Example();
  const uint32_t all = b.Temporary(DType::kF32, {2, 4, 6});
  b.program.tensors[all].space = static_cast<uint8_t>(Space::kHost);
  b.Temporary(DType::kF32, {4, 6});
  b.Temporary(DType::kU32, {});
  b.program.steps.push_back(std::move(step));
  return IsRefused(b);
}

TEST(Validate, HostMoves) {
  const auto refused = [](HostMove s) {
    s.cost = Builder::cost;
    return FeedRefused({s});
  };
  EXPECT_FALSE(refused({7, 6, 2, {}, 0}));
  EXPECT_FALSE(refused({6, 7, 2, {}, 0}));
  EXPECT_TRUE(refused({7, 6, kNone, {}, 0}));  // another shape
  EXPECT_TRUE(refused({6, 6, kNone, {}, 0}));
  EXPECT_TRUE(refused({0, 7, kNone, {}, 0}));  // neither is on the host
  EXPECT_TRUE(refused({6, 0, 2, {}, 0}));      // an argument
  EXPECT_TRUE(refused({6, 5, 2, {}, 0}));      // placed
  EXPECT_TRUE(refused({7, 99, 2, {}, 0}));
  EXPECT_TRUE(refused({7, 6, 4, {}, 0}));  // no I32
  EXPECT_TRUE(refused({7, 6, 99, {}, 0}));
  EXPECT_TRUE(refused({7, 6, -2, {}, 0}));
  EXPECT_TRUE(refused({7, 6, 2, {}, 99}));
}

TEST(Validate, Feeds) {
  const auto refused = [](std::vector<HostArray> arrays, int64_t feed,
                          int64_t valid, uint32_t location = 0) {
    return FeedRefused({Infeed{arrays, feed, valid, Builder::cost, location}});
  };
  EXPECT_FALSE(refused({{7, {0, 1}, DType::kF32}}, 8, 4));
  EXPECT_FALSE(
      refused({{7, {0, 1}, DType::kF32}, {2, {}, DType::kI32}}, kNone, kNone));
  EXPECT_FALSE(refused({}, kNone, kNone));
  EXPECT_TRUE(
      refused({{0, {0, 1}, DType::kF32}}, kNone, kNone));  // an argument
  EXPECT_TRUE(
      refused({{6, {0, 1, 2}, DType::kF32}}, kNone, kNone));  // on the host
  EXPECT_TRUE(refused({{7, {1, 0}, DType::kF32}}, kNone, kNone));
  EXPECT_TRUE(refused({{7, {0, 1}, DType::kF64}}, kNone, kNone));
  EXPECT_TRUE(refused({{99, {0, 1}, DType::kF32}}, kNone, kNone));
  EXPECT_TRUE(refused({}, 2, kNone));  // no U32
  EXPECT_TRUE(refused({}, 99, kNone));
  EXPECT_TRUE(refused({}, -2, kNone));
  EXPECT_TRUE(refused({}, kNone, 2));  // no BOOL
  EXPECT_TRUE(refused({}, kNone, 99));
  EXPECT_TRUE(refused({}, kNone, kNone, 99));
  EXPECT_FALSE(
      FeedRefused({Outfeed{{{0, {0, 1}, DType::kF32}}, Builder::cost, 0}}));
  EXPECT_TRUE(
      FeedRefused({Outfeed{{{0, {1, 0}, DType::kF32}}, Builder::cost, 0}}));
  EXPECT_TRUE(
      FeedRefused({Outfeed{{{5, {0, 1}, DType::kF32}}, Builder::cost, 0}}));
  EXPECT_TRUE(FeedRefused({Outfeed{{}, Builder::cost, 99}}));
}

}  // namespace
}  // namespace ipu::program
