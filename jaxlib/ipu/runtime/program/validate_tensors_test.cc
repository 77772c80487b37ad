// What the validator rejects in tensors, and in what is said of arguments,
// results and the machine.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/validate_for_tests.h"

namespace ipu::program {
namespace {

TEST(Validate, AcceptsTheExample) {
  EXPECT_FALSE(Refused([](Program&) {}));
}

TEST(Validate, Tensors) {
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].dtype = DType::kNone; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].dtype = DType{99}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].dtype = DType::kF64; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].shape = {4}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].shape = {-4, 6}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].shape = {kMost, kMost}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].strides = {1, 6}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].offset = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].mapping = 99; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].mapping = 0; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].root = 77; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].root = 5; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].address = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[0].space = 9; }));
}

TEST(Validate, Storage) {
  EXPECT_TRUE(Refused([](Program& p) { p.arena_bytes = 64; }));
  EXPECT_TRUE(Refused([](Program& p) { p.arena_bytes = ~uint64_t{0}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[2].address = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[2].address = 1 << 20; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[2].address = ~uint64_t{3}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[3].address = 64; }));
}

TEST(Validate, PlacedTensors) {
  const auto refused = [](int64_t offset, std::vector<int64_t> strides) {
    return Refused([&](Program& p) {
      p.tensors[5].offset = offset;
      p.tensors[5].strides = strides;
    });
  };
  EXPECT_FALSE(refused(23, {-1, -6}));
  EXPECT_FALSE(refused(7, {0, 0}));
  EXPECT_TRUE(refused(1, {1, 6}));
  EXPECT_TRUE(refused(-1, {1, 6}));
  EXPECT_TRUE(refused(22, {-1, -6}));
  EXPECT_TRUE(refused(0, {kMost, 6}));
  EXPECT_TRUE(refused(0, {kLeast, 6}));
  EXPECT_TRUE(refused(kMost, {kMost, kMost}));
  EXPECT_TRUE(Refused([](Program& p) { p.tensors[5].dtype = DType::kI32; }));
}

TEST(Validate, ArgumentsAndResults) {
  EXPECT_TRUE(Refused([](Program& p) { p.arguments[0] = 99; }));
  EXPECT_TRUE(Refused([](Program& p) { p.arguments[0] = 5; }));
  EXPECT_TRUE(Refused([](Program& p) { p.results[0] = 2; }));
  EXPECT_TRUE(Refused([](Program& p) { p.aliases[0].argument = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.aliases.push_back({0, 0}); }));
  EXPECT_TRUE(Refused([](Program& p) { p.donors = {1}; }));
  EXPECT_FALSE(Refused([](Program& p) { p.omissions = {{0, 0, 0}}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.omissions = {{1, 0, 0}}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.omissions = {{0, 0, 1 << 30}}; }));
  EXPECT_TRUE(Refused([](Program& p) { p.omissions = {{0, ~0ull, 1}}; }));
  EXPECT_TRUE(Refused([](Program& p) {
    p.module = "module";
    p.omissions = {{3, 0, 0}, {2, 0, 0}};
  }));
  EXPECT_TRUE(Refused([](Program& p) {
    p.tensors[1].shape = {4, 7};
    p.tensors[1].strides = {7, 1};
  }));
}

TEST(Validate, HostTypes) {
  const auto refused = [](HostType type) {
    type.on_host = 1;
    return Refused([&](Program& p) { p.host_types = {type}; });
  };
  EXPECT_FALSE(refused({0, 0, DType::kF32, {4, 6}, {1, 0}}));
  EXPECT_FALSE(refused({0, 0, DType::kF32, {6, 4}, {0, 1}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {4, 6}, {0, 1}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {6, 4}, {}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {24}, {}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {4, 6}, {0}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {4, 6}, {0, 0}}));
  EXPECT_TRUE(refused({0, 0, DType::kF32, {4, 6}, {0, 2}}));
  EXPECT_TRUE(refused({0, 0, DType::kI32, {4, 6}, {}}));
  EXPECT_TRUE(refused({0, 0, DType::kC64, {4, 3}, {}}));
  EXPECT_TRUE(refused({0, 1, DType::kF32, {4, 6}, {}}));
  EXPECT_TRUE(refused({1, 0, DType::kF32, {4, 6}, {}}));
}

TEST(Validate, HostTypesOfComplexNumbers) {
  const auto refused = [](const HostType& type) {
    Builder b;
    b.Argument(DType::kF32, {3, 4, 2});
    b.program.host_types = {type};
    return !Validate(b.program, 0).ok();
  };
  EXPECT_FALSE(refused({0, 0, DType::kC64, {3, 4}, {}, 0}));
  EXPECT_FALSE(refused({0, 0, DType::kC64, {4, 3}, {0, 1}, 0}));
  EXPECT_TRUE(refused({0, 0, DType::kC64, {4, 3}, {}, 0}));
  EXPECT_TRUE(refused({0, 0, DType::kC128, {3, 4}, {}, 0}));
  EXPECT_TRUE(refused({0, 0, DType::kF64, {3, 4}, {}, 0}));
}

TEST(Validate, ArraysInTheHostsMemoryAreStreamed) {
  EXPECT_TRUE(Refused([](Program& p) { p.host_types[0].on_host = 0; }));
  EXPECT_TRUE(Refused([](Program& p) { p.steps.erase(p.steps.begin() + 4); }));
  EXPECT_TRUE(Refused([](Program& p) {
    p.host_types.push_back({1, 0, DType::kF32, {4, 6}, {}, 1});
  }));
  EXPECT_TRUE(
      Refused([](Program& p) { StepOf<HostCopy>(p, 4).to_device = 0; }));
}

TEST(Validate, Mappings) {
  const auto refused = [](const std::function<void(Mapping&)>& change) {
    return Refused([&](Program& p) { change(p.mappings[1]); });
  };
  const auto cut = [](Mapping& m) {
    m = {0, {4, 6}, {2, 6}, {2, 0}, {2}, {1}};  // uses four tiles
  };
  EXPECT_FALSE(refused(cut));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.base = 1; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.strides[0] = 3; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.replica_counts[0] = 3; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.replica_counts[0] = -1; }));
  EXPECT_TRUE(refused([&](Mapping& m) {
    cut(m);
    m.replica_counts = {1 << 19, 1 << 19};  // their product overflows
    m.replica_strides = {1, 1 << 19};
  }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.replica_strides = {}; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.blocks[1] = 0; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.extents[1] = kMost; }));
  EXPECT_TRUE(refused([&](Mapping& m) { cut(m), m.strides[0] = kLeast; }));
  EXPECT_TRUE(refused([](Mapping& m) { m.extents = {5}; }));
}

TEST(Validate, Layouts) {
  const auto refused = [](Mapping mapping, uint32_t number = 0) {
    return Refused([&](Program& p) {
      p.layouts.push_back(
          {0, number, static_cast<uint32_t>(p.mappings.size()), 48, {}, {}});
      p.mappings.push_back(mapping);
    });
  };
  EXPECT_FALSE(refused({0, {4, 6}, {2, 6}, {2, 0}, {2}, {1}}));
  EXPECT_TRUE(refused({0, {4, 6}, {2, 6}, {2, 0}, {2}, {1}}, 100));
  EXPECT_TRUE(refused({0, {5}, {5}, {0}, {}, {}}));
  // Eight parts, of which several are on the same tile.
  EXPECT_TRUE(refused({0, {2, 2, 2, 3}, {1, 1, 1, 3}, {1, 1, 1, 0}, {}, {}}));
}

TEST(Validate, TargetMemoryAndCosts) {
  EXPECT_TRUE(Refused([](Program& p) { p.target.num_tiles = 0; }));
  EXPECT_TRUE(Refused([](Program& p) { p.target.num_tiles = ~0u; }));
  EXPECT_TRUE(Refused([](Program& p) { p.target.clock_hz = 0; }));
  EXPECT_FALSE(Refused([](Program& p) { p.num_partitions = 64; }));
  EXPECT_TRUE(Refused([](Program& p) { p.num_partitions = 0; }));
  EXPECT_TRUE(Refused([](Program& p) { p.num_partitions = ~0u; }));
  EXPECT_TRUE(
      Refused([](Program& p) { p.shardings.resize(p.arguments.size() + 2); }));
  EXPECT_TRUE(Refused([](Program& p) { p.estimated_seconds = -1; }));
  EXPECT_FALSE(Refused([](Program& p) { p.memory.peak_tile = 3; }));
  EXPECT_TRUE(Refused([](Program& p) { p.memory.peak_tile = 4; }));
  const auto refused = [](std::vector<uint32_t> tiles,
                          std::vector<uint64_t> bytes) {
    return Refused([&](Program& p) {
      p.memory.peak_tile_bytes = 100;
      p.memory.range_tiles = tiles;
      p.memory.range_bytes = bytes;
    });
  };
  EXPECT_FALSE(refused({3, 1}, {100, 0}));
  EXPECT_TRUE(refused({3, 1}, {101, 0}));
  EXPECT_TRUE(refused({3}, {100}));
  EXPECT_TRUE(refused({3, 1}, {100}));
  EXPECT_TRUE(refused({3, 1}, {100, 0, 0}));
  EXPECT_TRUE(refused({}, {100}));
  EXPECT_TRUE(refused({~0u, 5}, {100, 100}));
  EXPECT_TRUE(Refused([](Program& p) { p.memory.alias_bytes = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.memory.temporary_bytes = ~0ull; }));
  EXPECT_TRUE(Refused([](Program& p) {
    p.cost_analysis = {{"flops", std::numeric_limits<double>::infinity()}};
  }));
}

}  // namespace
}  // namespace ipu::program
