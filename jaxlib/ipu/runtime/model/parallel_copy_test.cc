// The order of moves that read and write the same memory.

#include "jaxlib/ipu/runtime/model/parallel_copy.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu::model {
namespace {

View Part(int64_t offset, int64_t extent) {
  View view;
  view.base = kArenaBase;
  view.offset = offset;
  view.item_size = 1;
  view.shape = {extent};
  view.strides = {1};
  return view;
}

void Run(const ParallelCopy& copy, std::vector<int>& memory) {
  for (const auto& group : copy.groups) {
    for (const CopyPlan& plan : group) {
      for (int64_t i = 0; i < plan.source.shape[0]; ++i) {
        memory[plan.destination.offset + i] = memory[plan.source.offset + i];
      }
    }
  }
}

// Moves `count` parts of up to `longest` elements, to places of their own.
void ExpectSimultaneous(int count, int64_t longest, int64_t room,
                        std::mt19937& random) {
  std::vector<int64_t> places;
  for (int64_t at = 0; at + longest <= room; at += longest) {
    places.push_back(at);
  }
  ASSERT_GE(places.size(), static_cast<size_t>(count));
  std::shuffle(places.begin(), places.end(), random);
  std::vector<CopyPlan> plans;
  for (int i = 0; i < count; ++i) {
    const int64_t extent = 1 + static_cast<int64_t>(random() % longest);
    const auto from = static_cast<int64_t>(random() % (room - extent + 1));
    plans.push_back({Part(from, extent), Part(places[i], extent)});
  }
  std::vector<int> memory(room);
  for (int64_t i = 0; i < room; ++i) memory[i] = static_cast<int>(i);
  std::vector<int> expected = memory;
  for (const CopyPlan& plan : plans) {
    std::copy_n(memory.begin() + plan.source.offset, plan.source.shape[0],
                expected.begin() + plan.destination.offset);
  }
  const ParallelCopy copy = ScheduleCopies(plans, {0}, room);
  memory.resize(room + copy.scratch_bytes, -1);
  Run(copy, memory);
  memory.resize(room);
  EXPECT_EQ(memory, expected);
}

TEST(ScheduleCopies, IsAsIfAllMovesHappenedAtOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int count = 1 + static_cast<int>(random() % 20);
    const auto longest = 1 + static_cast<int64_t>(random() % 9);
    ExpectSimultaneous(count, longest, count * longest + random() % 20, random);
  }
}

TEST(ScheduleCopies, ManyMoves) {
  std::mt19937 random(2);
  ExpectSimultaneous(16000, 4, 64000, random);
}

// Interleaved moves, all of which overlap each other by their extents.
TEST(ScheduleCopies, ManyOverlappingMoves) {
  constexpr int64_t kCount = 16000, kExtent = 4;
  std::vector<CopyPlan> plans;
  for (int64_t i = 0; i < kCount; ++i) {
    CopyPlan plan{Part((i + 1) % kCount, kExtent), Part(i, kExtent)};
    plan.source.strides = plan.destination.strides = {kCount};
    plans.push_back(plan);
  }
  const ParallelCopy copy = ScheduleCopies(plans, {0}, kCount * kExtent);
  std::vector<int> memory(kCount * kExtent + copy.scratch_bytes);
  for (int64_t i = 0; i < kCount; ++i) memory[i] = static_cast<int>(i);
  for (const auto& group : copy.groups) {
    for (const CopyPlan& plan : group) {
      for (int64_t k = 0; k < kExtent; ++k) {
        memory[plan.destination.offset + k * plan.destination.strides[0]] =
            memory[plan.source.offset + k * plan.source.strides[0]];
      }
    }
  }
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(memory[i], (i + 1) % kCount);
  }
}

// The same through the engine: a rotation of a tensor's columns.
TEST(ScheduleCopies, AProgramOfManyOverlappingMovesRuns) {
  using namespace program;  // NOLINT
  constexpr int64_t kCount = 16000, kRows = 2;
  Builder b;
  const uint32_t x = b.Argument(DType::kI32, {kRows, kCount});
  const uint32_t t = b.Temporary(DType::kI32, {kRows, kCount});
  const uint32_t y = b.Result(DType::kI32, {kRows, kCount});
  std::vector<Move> moves;
  for (int64_t i = 0; i < kCount; ++i) {
    moves.push_back({t, (i + 1) % kCount, {kCount}, t, i, {kCount}, {kRows}});
  }
  b.program.steps = {Builder::CopyOf({b.Whole(x, t)}),
                     Builder::CopyOf(std::move(moves)),
                     Builder::CopyOf({b.Whole(t, y)})};
  const auto engine = MakeModelEngine(1);
  auto loaded = engine->Load(AlignedBytes::Copy(Encode(b.program)));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  std::vector<int32_t> in(kRows * kCount), out(kRows * kCount);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i);
  const void* arguments[] = {in.data()};
  void* results[] = {out.data()};
  ASSERT_TRUE((*loaded)->Run(arguments, results, nullptr).ok());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[r * kCount + i], r * kCount + (i + 1) % kCount);
    }
  }
}

}  // namespace
}  // namespace ipu::model
