// What stays in SRAM between calls, and what is refused because of it. The
// test's machine has four tiles of 1024 bytes. No array takes less than 128
// bytes of a tile, so 32 floats are on a single tile.

#include "jaxlib/ipu/runtime/pjrt/sram.h"

#include <new>

#include "jaxlib/ipu/runtime/pjrt/testing.h"

namespace ipu::testing {
namespace {

using Vector = std::vector<float>;

class SramTest : public PjrtTest {
 protected:
  Sram::Figures figures() { return device()->sram.figures(); }

  // Puts `count` floats and returns the error message if they are refused.
  std::string Refusal(int64_t count, std::unique_ptr<PJRT_Buffer>* buffer) {
    PJRT_Error* error = TryPut(Vector(count), buffer);
    return error == nullptr ? "" : Message(error);
  }

  // The error message of a call's results.
  std::string Refusal(PJRT_LoadedExecutable* executable, PJRT_Buffer* argument,
                      std::vector<int64_t> keep = {}) {
    Outcome outcome = Execute(executable, {argument}, std::move(keep));
    return Get(outcome.results.at(0).get()).second;
  }

  static bool Says(const std::string& message, const std::string& what) {
    return message.find(what) != std::string::npos;
  }
};

// A program whose fullest tile needs `tile_bytes`, including its argument and
// result.
FakeProgram Needing(int64_t tile_bytes, int64_t count) {
  FakeProgram program = Increment(count);
  program.info.peak_tile_bytes = tile_bytes;
  return program;
}

TEST_F(SramTest, AnArrayTakesTheBytesOfItsFullestTile) {
  EXPECT_EQ(ipu_fullest_tile_bytes(Number(DType::kF32), nullptr, 0, 4, 8), 4);
  const auto bytes = [](DType dtype, std::vector<int64_t> shape) {
    return ipu_fullest_tile_bytes(Number(dtype), shape.data(), shape.size(),
                                  1472, 8);
  };
  EXPECT_EQ(bytes(DType::kF32, {0}), 0);
  EXPECT_EQ(bytes(DType::kF32, {5, 0}), 0);
  EXPECT_EQ(bytes(DType::kF32, {64}), 128);
  EXPECT_EQ(bytes(DType::kF32, {1472 * 100}), 400);
  EXPECT_EQ(bytes(DType::kC64, {1472 * 100}), 800);
  EXPECT_EQ(bytes(DType::kI4, {1472 * 1000}), 1000);
  EXPECT_EQ(bytes(DType::kF16, {1472, 1000}), 2000);
}

TEST_F(SramTest, ArraysBeyondItAreRefused) {
  std::unique_ptr<PJRT_Buffer> x, y, z;
  EXPECT_EQ(Refusal(4 * 200, &x), "");  // 800 bytes on each tile
  const std::string message = Refusal(4 * 100, &y);
  EXPECT_TRUE(Says(message, "f32[400] needs 400 bytes")) << message;
  EXPECT_TRUE(Says(message, "224 of 1,024 are free")) << message;
  EXPECT_TRUE(Says(message, "1 x f32[800]: 800 bytes")) << message;
  EXPECT_EQ(Refusal(4 * 56, &y), "");  // the rest
  EXPECT_EQ(figures().free, 0);
  EXPECT_NE(Refusal(1, &z), "");
  x->Delete();
  EXPECT_EQ(figures().in_use, 4 * 4 * 56);
  EXPECT_EQ(Refusal(4 * 100, &z), "");
}

TEST_F(SramTest, ReferencedMemoryDoesNotCountAfterDeletion) {
  auto x = Put(Vector(100));
  x->IncreaseExternalReferences();
  x->Delete();
  EXPECT_EQ(figures().in_use, 0);
  EXPECT_NE(x->Data(), nullptr);
  x->DecreaseExternalReferences();
  EXPECT_EQ(figures().in_use, 0);
}

TEST_F(SramTest, ProgramsRunBesideResidentArrays) {
  auto executable = Load(Needing(500, 4 * 26));  // 104 + 104 on each tile
  auto x = Put(Vector(4 * 26));
  auto other = Put(Vector(4 * 130));  // 520 on each tile
  EXPECT_EQ(Refusal(executable.get(), x.get()), "");
  auto more = Put({1, 2});
  const std::string message = Refusal(executable.get(), x.get());
  EXPECT_TRUE(Says(message, "program increment needs 396 bytes")) << message;
  EXPECT_TRUE(Says(message, "4 more than the 1,024")) << message;
  EXPECT_TRUE(Says(message, "1 x f32[520]: 520 bytes")) << message;
  EXPECT_FALSE(Says(message, "f32[104]")) << message;
  EXPECT_EQ(figures().in_use, 4 * (104 + 520 + 2));
  more.reset();
  EXPECT_EQ(Refusal(executable.get(), x.get()), "");
  EXPECT_EQ(figures().in_use, 4 * (104 + 520));  // the result is released
}

TEST_F(SramTest, DonatedMemoryCountsOnce) {
  FakeProgram program = Needing(600, 4 * 150);
  program.info.aliases = {{0, 0}};
  auto executable = Load(program);
  auto x = Put(Vector(4 * 150));
  Outcome y = Execute(executable.get(), {x.get()});
  EXPECT_EQ(y.error, "");
  EXPECT_EQ(figures().in_use, 4 * 4 * 150);
  // An argument that the caller keeps needs space in addition to the result.
  const std::string kept =
      Refusal(executable.get(), y.results[0].get(), /*keep=*/{0});
  EXPECT_TRUE(Says(kept, "176 more than")) << kept;
  EXPECT_EQ(Values(y.results[0].get())[0], 1);
}

TEST_F(SramTest, AnArgumentPassedTwiceCountsOnce) {
  FakeProgram program = Needing(900, 4 * 100);  // 400 of that per argument
  program.info.arguments.push_back(program.info.arguments[0]);
  auto executable = Load(program);
  auto x = Put(Vector(4 * 100));
  const auto refusal = [&] {
    Outcome outcome = Execute(executable.get(), {x.get(), x.get()});
    return Get(outcome.results.at(0).get()).second;
  };
  EXPECT_EQ(refusal(), "");
  auto other = Put(Vector(4 * 40));  // leaves 464 in addition to x
  const std::string message = refusal();
  EXPECT_TRUE(Says(message, "needs 500 bytes")) << message;
}

TEST_F(SramTest, AProgramThatMayOverflowRuns) {
  auto executable = Load(Needing(5000, 4));
  auto x = Put(Vector(4));
  EXPECT_EQ(Refusal(executable.get(), x.get()), "");
}

TEST_F(SramTest, MemoryOfTheHostDoesNotCount) {
  auto x = Put(Vector(100));
  PJRT_Buffer_CopyToMemory_Args args = {};
  args.buffer = x.get();
  args.dst_memory = &device()->host_memory;
  Check(api_->PJRT_Buffer_CopyToMemory(&args));
  std::unique_ptr<PJRT_Buffer> y(args.dst_buffer);
  EXPECT_EQ(figures().in_use, 400);
  x->Delete();
  EXPECT_EQ(figures().in_use, 0);
  args.buffer = y.get();
  args.dst_memory = &device()->memory;
  Check(api_->PJRT_Buffer_CopyToMemory(&args));
  std::unique_ptr<PJRT_Buffer> z(args.dst_buffer);
  EXPECT_EQ(figures().in_use, 400);
}

TEST_F(SramTest, ThePeakIncludesRuns) {
  FakeProgram program = Increment(4);
  program.info.argument_bytes = program.info.result_bytes = 16;
  program.info.temporary_bytes = 1000;
  auto executable = Load(program);
  auto x = Put(Vector(4)), other = Put(Vector(10));
  Execute(executable.get(), {x.get()});
  EXPECT_EQ(figures().peak, 16 + 40 + 16 + 1000);
  EXPECT_EQ(figures().largest, 40);
  EXPECT_EQ(figures().count, 3);
}

TEST_F(SramTest, RunningOutOfHostMemoryIsAnError) {
  for (const double seconds : {0.0, kLong}) {
    FakeProgram program = Increment(4);
    program.info.estimated_seconds = seconds;
    program.run = [](auto, auto) -> Status { throw std::bad_alloc(); };
    auto executable = Load(program);
    auto x = Put({1, 2, 3, 4});
    Outcome outcome = Execute(executable.get(), {x.get()});
    ASSERT_EQ(outcome.error, "");
    EXPECT_TRUE(
        Says(Get(outcome.results[0].get()).second, "out of host memory"));
    EXPECT_EQ(Values(x.get()), (Vector{1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace ipu::testing
