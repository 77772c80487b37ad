// What the validator rejects, one error at a time.

#include "jaxlib/ipu/runtime/program/validate.h"

#include <functional>
#include <limits>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/same_code.h"

namespace ipu::program {
namespace {

// Tensors: 0 argument f32[4,6], 1 result f32[4,6], 2 temporary i32[],
// 3 constant i32[8], 4 temporary bool[], 5 placed: transposed view of 0.
Builder Example() {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {4, 6});
  const uint32_t y = b.Result(DType::kF32, {4, 6});
  const uint32_t i = b.Temporary(DType::kI32, {});
  const uint32_t table =
      b.Constant<int32_t>(DType::kI32, {8}, {1, 2, 3, 4, 5, 6, 7});
  const uint32_t flag = b.Temporary(DType::kBool, {});
  const uint32_t placed = b.Placed(x, {6, 4}, 0, {1, 6});
  b.program.aliases = {{0, 0}};
  b.program.host_types = {{0, 0, DType::kF32, {4, 6}, {}, 1}};
  b.program.steps = {
      Builder::CopyOf({b.Whole(x, y), b.Whole(x, placed)}),
      Builder::Pick(table, i, i),
      {While{{}, flag, {}, Builder::cost, 0}},
      {Switch{i, {{}, {}}, Builder::cost, 0}},
      {HostCopy{x, 1, Builder::cost, 0}},
      {HostCallback{"f",
                    {},
                    {{x, {1, 0}, DType::kF32}, {i, {}, DType::kI32}},
                    {{y, {0, 1}, DType::kF32}},
                    {0},
                    Builder::cost,
                    0}},
  };
  return b;
}

bool Refused(const std::function<void(Program&)>& change) {
  Builder b = Example();
  change(b.program);
  const Status status = Validate(b.program, b.constants.size());
  EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss);
  return !status.ok();
}

template <typename T>
T& StepOf(Program& p, size_t i) {
  return std::get<T>(p.steps[i].value);
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

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

TEST(Validate, Copies) {
  const auto refused = [](const std::function<void(Move&)>& change) {
    return Refused([&](Program& p) { change(StepOf<Copy>(p, 0).moves[0]); });
  };
  EXPECT_TRUE(refused([](Move& m) { m.source = 99; }));
  EXPECT_TRUE(refused([](Move& m) { m.destination = 99; }));
  EXPECT_TRUE(refused([](Move& m) { m.source = 4; }));
  EXPECT_TRUE(refused([](Move& m) { m.source_offset = 1; }));
  EXPECT_TRUE(refused([](Move& m) { m.destination_offset = -1; }));
  EXPECT_TRUE(refused([](Move& m) { m.shape = {4, kMost}; }));
  EXPECT_TRUE(refused([](Move& m) { m.shape = {4}; }));
  EXPECT_TRUE(refused([](Move& m) { m.source_strides = {kMost, 1}; }));
  EXPECT_FALSE(refused([](Move& m) { m.source_strides = {0, 0}; }));
}

TEST(Validate, ComputeSets) {
  const auto refused = [](const std::function<void(Execute&)>& change) {
    return Refused([&](Program& p) { change(StepOf<Execute>(p, 1)); });
  };
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {9}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {kMost}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.shape = {1, 1}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.partition = 99; }));
  EXPECT_TRUE(refused([](Execute& e) { e.location = 1; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].tensor = 99; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].dims = {1}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.operands[0].dims = {-2}; }));
  EXPECT_TRUE(refused([](Execute& e) { e.cost.sync_cycles = -1; }));
  EXPECT_FALSE(refused([](Execute& e) { e.shape = {8}; }));
}

TEST(Validate, AnEmptyReductionHasToFitItsResult) {
  const auto refused = [](std::vector<int64_t> shape) {
    return Refused([&](Program& p) {
      p.tensors[3].space = static_cast<uint8_t>(Space::kResult);
      p.tensors[3].address = p.results.size();
      p.results.push_back(3);
      Execute e;
      e.fields.value = Reduce{};
      e.shape = shape;
      e.operands = {{0, {0, 1}}};
      e.results = {{3, {0, -1}}};
      p.steps.push_back({e});
    });
  };
  EXPECT_FALSE(refused({4, 6}));
  EXPECT_FALSE(refused({8, 0}));
  EXPECT_TRUE(refused({9, 0}));
}

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

// As the example, with a buffer of the host, 6 f32[2,4,6], and one part of it,
// 7 f32[4,6]; 8 number u32[].
bool FeedRefused(Step step) {
  Builder b = Example();
  const uint32_t all = b.Temporary(DType::kF32, {2, 4, 6});
  b.program.tensors[all].space = static_cast<uint8_t>(Space::kHost);
  b.Temporary(DType::kF32, {4, 6});
  b.Temporary(DType::kU32, {});
  b.program.steps.push_back(std::move(step));
  const Status status = Validate(b.program, b.constants.size());
  EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss);
  return !status.ok();
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

TEST(Validate, MovesOfMoreElementsThanThereAre) {
  EXPECT_TRUE(Refused([](Program& p) {
    Move& move = StepOf<Copy>(p, 0).moves[0];
    move.shape = {int64_t{1} << 40};
    move.source_strides = move.destination_strides = {0};
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
  EXPECT_TRUE(Refused([](Program& p) { p.memory.alias_bytes = 1; }));
  EXPECT_TRUE(Refused([](Program& p) { p.memory.temporary_bytes = ~0ull; }));
  EXPECT_TRUE(Refused([](Program& p) {
    p.cost_analysis = {{"flops", std::numeric_limits<double>::infinity()}};
  }));
}

// Of the example's tensors, 0 is an argument, 3 a constant, 5 a view.
TEST(Validate, ArgumentsConstantsAndViewsAreNotWritten) {
  for (const uint32_t tensor : {0u, 3u, 5u}) {
    EXPECT_TRUE(Refused(
        [=](Program& p) { StepOf<Execute>(p, 1).results[0].tensor = tensor; }));
    if (tensor != 5) {  // exchanges may place views
      EXPECT_TRUE(Refused([=](Program& p) {
        Builder b = Example();
        p.steps.push_back(Builder::CopyOf({b.Whole(tensor, tensor)}));
      }));
    }
  }
  EXPECT_TRUE(Refused([](Program& p) {
    HostCallback& s = StepOf<HostCallback>(p, 5);
    s.results[0] = s.operands[0];
  }));
}

TEST(Validate, AMapMayWriteAViewWithoutOverlaps) {
  const auto refused = [](std::vector<int64_t> strides, bool map) {
    return Refused([&](Program& p) {
      p.tensors[5].root = 1;  // the result, [4, 6]
      p.tensors[5].strides = std::move(strides);
      Execute e = StepOf<Execute>(p, 1);
      e.shape = {6, 4};
      if (map) e.fields.value = Map{};
      e.operands = {};
      e.results = {{5, {0, 1}}};
      p.steps.push_back({e});
    });
  };
  EXPECT_FALSE(refused({1, 6}, true));
  EXPECT_TRUE(refused({1, 6}, false));
  EXPECT_TRUE(refused({1, 0}, true));
  EXPECT_TRUE(refused({1, 5}, true));
}

TEST(Validate, ResultsAreWritten) {
  const auto refused = [](std::vector<Step> steps) {
    return Refused([&](Program& p) {
      p.host_types = {};
      p.steps = std::move(steps);
    });
  };
  Builder b = Example();
  const Step write = Builder::CopyOf({b.Whole(0, 1)});
  EXPECT_TRUE(refused({}));
  EXPECT_FALSE(refused({write}));
  Step nothing = write;
  std::get<Copy>(nothing.value).moves[0].shape = {0, 6};
  EXPECT_TRUE(refused({nothing}));
  EXPECT_FALSE(refused({nothing, write}));
  EXPECT_FALSE(refused({{Repeat{2, {write}, 0}}}));
  EXPECT_TRUE(refused({{Repeat{0, {write}, 0}}}));
  EXPECT_TRUE(refused({{While{{}, 4, {write}, Builder::cost, 0}}}));
  EXPECT_FALSE(refused({{While{{write}, 4, {}, Builder::cost, 0}}}));
  EXPECT_FALSE(
      refused({{Switch{2, {{{write}}, {{write}}}, Builder::cost, 0}}}));
  EXPECT_TRUE(refused({{Switch{2, {{{write}}, {}}, Builder::cost, 0}}}));
}

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
  const Status status = Validate(b.program, b.constants.size());
  EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss);
  return !status.ok();
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

TEST(Validate, ControlFlow) {
  EXPECT_TRUE(Refused(
      [](Program& p) { p.steps.push_back({Repeat{~uint64_t{0}, {}, 0}}); }));
  EXPECT_FALSE(Refused([](Program& p) {
    p.steps.push_back({Repeat{uint64_t{1} << 50, {}, 0}});
  }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<While>(p, 2).predicate = 99; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<While>(p, 2).predicate = 2; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<Switch>(p, 3).selector = 3; }));
  EXPECT_TRUE(
      Refused([](Program& p) { StepOf<Switch>(p, 3).branches.clear(); }));
  EXPECT_FALSE(Refused([](Program& p) { StepOf<Switch>(p, 3).selector = 4; }));
  EXPECT_TRUE(Refused([](Program& p) { StepOf<HostCopy>(p, 4).tensor = 99; }));
  EXPECT_TRUE(Refused([](Program& p) {
    Step wrong = Builder::Pick(99, 0, 0);
    StepOf<Switch>(p, 3).branches[1].steps = {wrong};
  }));
}

TEST(Validate, Calls) {
  const auto refused = [](std::vector<Step> calls) {
    return Refused([&](Program& p) {
      p.functions = {{64}, {32}};
      p.steps.insert(p.steps.end(), calls.begin(), calls.end());
    });
  };
  Builder b = Example();
  const auto call = [](uint32_t function, std::vector<Step> body) {
    return Step{Call{function, std::move(body), Builder::cost, 0}};
  };
  const Step write = Builder::CopyOf({b.Whole(0, 1)});
  const Step pick = Builder::Pick(3, 2, 2);
  EXPECT_FALSE(refused({call(0, {write}), call(0, {write})}));
  EXPECT_TRUE(refused({call(2, {write})}));
  EXPECT_TRUE(refused({call(0, {write}), call(0, {pick})}));
  EXPECT_TRUE(refused({call(0, {write}), call(0, {write, write})}));
  // Other costs and lines are those of another call.
  Step priced = write;
  std::get<Copy>(priced.value).cost.flops = 3;
  EXPECT_FALSE(refused({call(0, {write}), call(0, {priced})}));
  // A function calls only those before it, which do not call themselves.
  EXPECT_FALSE(refused({call(1, {call(0, {write})})}));
  EXPECT_TRUE(refused({call(0, {call(1, {write})})}));
  EXPECT_TRUE(refused({call(1, {call(1, {write})})}));
}

TEST(Validate, CallsPassConstants) {
  const auto code = [](uint64_t value, Opcode op) {
    std::string made(16, '\0');
    made[0] = static_cast<char>(op);
    std::memcpy(&made[8], &value, sizeof value);
    return made;
  };
  const auto filling = [](std::string code) {
    Execute e;
    e.fields.value = Map{std::move(code), {0}};
    e.shape = {};
    e.results = {{2, {}}};
    e.cost = Builder::cost;
    return Step{e};
  };
  EXPECT_EQ(CodeOf({filling(code(1, Opcode::kConst))}),
            CodeOf({filling(code(2, Opcode::kConst))}));
  EXPECT_NE(CodeOf({filling(code(0, Opcode::kLoad))}),
            CodeOf({filling(code(1, Opcode::kLoad))}));
}

}  // namespace
}  // namespace ipu::program
