// What the validator rejects in steps of several devices.

#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/validate_for_tests.h"

namespace ipu::program {
namespace {

// Of four devices; tensors 6 f32[8], 7 f32[8], 8 f32[16], 9 f32[4], 10 u32[].
bool RefusesCollective(CollectiveKind kind, std::vector<uint32_t> operands,
                       std::vector<uint32_t> results, std::vector<Group> groups,
                       std::vector<int32_t> sources = {}) {
  Builder b = Example();
  for (const int64_t size : {8, 8, 16, 4}) b.Temporary(DType::kF32, {size});
  b.Temporary(DType::kU32, {});
  b.program.num_partitions = 4;
  const bool reduces = kind == CollectiveKind::kAllReduce ||
                       kind == CollectiveKind::kReduceScatter;
  b.program.steps.push_back(
      {Collective{static_cast<uint8_t>(kind), uint8_t{reduces},
                  std::move(operands), std::move(results), std::move(groups),
                  std::move(sources), Builder::cost, 0}});
  return IsRefused(b);
}

TEST(Validate, GroupsOfCollectives) {
  const auto refused = [](std::vector<Group> groups) {
    return RefusesCollective(CollectiveKind::kAllReduce, {6}, {7}, groups);
  };
  EXPECT_FALSE(refused({{{0, 1, 2, 3}}}));
  EXPECT_FALSE(refused({{{3, 1}}, {{0}}, {{2}}}));
  EXPECT_TRUE(refused({{{0, 1, 2}}}));
  EXPECT_TRUE(refused({{{0, 1, 2, 4}}}));
  EXPECT_TRUE(refused({{{0, 1, 2, 3}}, {{1}}}));
  EXPECT_TRUE(refused({{{0, 1, 2, 3}}, {{}}}));
  EXPECT_TRUE(refused({}));
}

TEST(Validate, SizesOfCollectives) {
  const std::vector<Group> pairs = {{{0, 1}}, {{2, 3}}};
  const auto refused = [&](CollectiveKind kind, uint32_t from, uint32_t to) {
    return RefusesCollective(kind, {from}, {to}, pairs);
  };
  EXPECT_FALSE(refused(CollectiveKind::kAllReduce, 6, 7));
  EXPECT_TRUE(refused(CollectiveKind::kAllReduce, 6, 8));
  EXPECT_FALSE(refused(CollectiveKind::kAllGather, 6, 8));
  EXPECT_TRUE(refused(CollectiveKind::kAllGather, 6, 7));
  EXPECT_FALSE(refused(CollectiveKind::kReduceScatter, 6, 9));
  EXPECT_TRUE(refused(CollectiveKind::kReduceScatter, 6, 8));
  EXPECT_FALSE(refused(CollectiveKind::kAllToAll, 6, 7));
  EXPECT_TRUE(refused(CollectiveKind::kAllToAll, 6, 9));
  EXPECT_FALSE(refused(CollectiveKind::kBroadcast, 6, 7));
  EXPECT_TRUE(refused(CollectiveKind::kAllReduce, 2, 6));  // of another type
  EXPECT_TRUE(refused(CollectiveKind::kAllReduce, 6, 0));  // is not written
  EXPECT_TRUE(refused(CollectiveKind::kAllReduce, 5, 6));  // a view
  EXPECT_TRUE(refused(CollectiveKind::kAllReduce, 99, 6));
  EXPECT_TRUE(refused(static_cast<CollectiveKind>(9), 6, 7));
  EXPECT_TRUE(
      RefusesCollective(CollectiveKind::kRaggedAllToAll, {6}, {7}, pairs));
}

TEST(Validate, SourcesOfPermutes) {
  const auto refused = [](std::vector<int32_t> sources) {
    return RefusesCollective(CollectiveKind::kPermute, {6}, {7}, {{{0, 1}}},
                             std::move(sources));
  };
  EXPECT_FALSE(refused({1, 0, -1, -1}));
  EXPECT_TRUE(refused({1, 0, -1}));
  EXPECT_TRUE(refused({1, 0, 0, -1}));  // which it does not meet
  EXPECT_TRUE(refused({2, 0, -1, -1}));
  EXPECT_TRUE(refused({4, 0, -1, -1}));
  EXPECT_TRUE(refused({-2, 0, -1, -1}));
}

TEST(Validate, PartitionIds) {
  EXPECT_TRUE(Refused([](Program& p) { p.num_partitions = 0; }));
  EXPECT_TRUE(Refused([](Program& p) { p.num_partitions = 1 << 20; }));
  const auto refused = [](uint32_t tensor) {
    return Refused([&](Program& p) {
      p.tensors[2].dtype = DType::kU32;
      p.steps = {Builder::CopyOf({}),
                 p.steps[0],
                 {PartitionId{tensor, Builder::cost, 0}}};
      p.host_types = {};
    });
  };
  EXPECT_FALSE(refused(2));
  EXPECT_TRUE(refused(1));
  EXPECT_TRUE(refused(3));
  EXPECT_TRUE(refused(99));
}

}  // namespace
}  // namespace ipu::program
