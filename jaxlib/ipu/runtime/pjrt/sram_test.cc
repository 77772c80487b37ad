// What stays in SRAM between calls, and what is refused because of it. The
// test's machine has four tiles of 1024 bytes. No array takes less than 128
// bytes of a tile, so 32 floats are on a single tile.

#include "jaxlib/ipu/runtime/pjrt/sram.h"

#include <new>

#include "jaxlib/ipu/runtime/pjrt/array_tiles.h"
#include "jaxlib/ipu/runtime/pjrt/dtype.h"
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

  // An array that is on one tile as a whole, or in blocks on all four.
  static TensorInfo OnTile(int64_t tile, int64_t count) {
    return In({tile, 1, count, 1, count, 1, 0, 0, 0}, count, 4 * count);
  }
  static TensorInfo OnAll(int64_t count) {
    return In({0, 1, count, 1, count / 4, 1, 1, 0, 0}, count, count);
  }

 private:
  static TensorInfo In(std::vector<int64_t> mapping, int64_t count,
                       int64_t tile_bytes) {
    TensorInfo info = Floats(count);
    info.layout = std::make_shared<const ArrayLayout>(
        ArrayLayout{std::move(mapping), tile_bytes});
    info.tile_bytes = tile_bytes;
    return info;
  }
};

// A program whose tiles need so many bytes, its argument and result included.
FakeProgram NeedingByTile(std::vector<TileRange> ranges, TensorInfo argument) {
  FakeProgram program = Increment(argument.shape[0]);
  program.info.arguments = {std::move(argument)};
  program.info.tile_ranges = std::move(ranges);
  for (const TileRange& range : program.info.tile_ranges) {
    program.info.peak_tile_bytes =
        std::max(program.info.peak_tile_bytes, range.bytes);
  }
  return program;
}

// A program whose fullest tile needs `tile_bytes`, including its argument and
// result.
FakeProgram Needing(int64_t tile_bytes, int64_t count) {
  FakeProgram program = Increment(count);
  program.info.peak_tile_bytes = tile_bytes;
  return program;
}

TEST_F(SramTest, AnArrayTakesTheBytesOfItsFullestTile) {
  const auto bytes = [](DType dtype, std::vector<int64_t> shape) {
    TensorInfo info{dtype, shape, InfoOf(dtype).bytes};
    for (const int64_t extent : shape) info.bytes *= extent;
    return FullestTileBytes(info, 1472, 8);
  };
  EXPECT_EQ(bytes(DType::kF32, {}), 4);
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

TEST_F(SramTest, EachTileHasItsOwnAccount) {
  Sram& sram = device()->sram;
  const TensorInfo first = OnTile(1, 200), second = OnTile(2, 200);
  const TensorInfo third = OnTile(2, 60), all = OnAll(4 * 50);
  Resident a, b, c, d;
  EXPECT_TRUE(sram.Enter(first, &a).ok());
  EXPECT_TRUE(sram.Enter(second, &b).ok());  // 1,600 bytes, but of two tiles
  EXPECT_EQ(sram.figures().free, 4 * (1024 - 800));
  const std::string message(sram.Enter(third, &c).message());
  EXPECT_TRUE(Says(message, "f32[60] needs 240 bytes of tile 2's SRAM"))
      << message;
  EXPECT_TRUE(Says(message, "only 224 of 1,024 are free there")) << message;
  EXPECT_TRUE(Says(message, "1 x f32[200]: 800 bytes")) << message;
  EXPECT_EQ(sram.figures().in_use, 1600);
  EXPECT_TRUE(sram.Enter(all, &d).ok());  // 200 on each tile
  EXPECT_EQ(sram.figures().free, 4 * 24);
  b.Leave();
  EXPECT_TRUE(sram.Enter(third, &c).ok());
  EXPECT_EQ(sram.figures().free, 4 * 24);  // tile 1 is the fullest now
  a.Leave();
  EXPECT_EQ(sram.figures().free, 4 * (1024 - 440));
}

TEST_F(SramTest, ProgramsAreAdmittedTileByTile) {
  auto executable =
      Load(NeedingByTile({{1, 300}, {2, 900}, {1, 0}}, Floats(1)));
  auto x = Put({1});
  const TensorInfo left = OnTile(0, 180), right = OnTile(3, 250);
  const TensorInfo middle = OnTile(2, 32);
  Resident a, b, c;
  EXPECT_TRUE(device()->sram.Enter(left, &a).ok());
  EXPECT_TRUE(device()->sram.Enter(right, &b).ok());
  EXPECT_EQ(Refusal(executable.get(), x.get()), "");
  EXPECT_TRUE(device()->sram.Enter(middle, &c).ok());
  const std::string message = Refusal(executable.get(), x.get());
  EXPECT_TRUE(Says(message, "needs 900 bytes of tile 2's SRAM")) << message;
  EXPECT_TRUE(Says(message, "4 more than the 1,024")) << message;
  EXPECT_TRUE(Says(message, "1 x f32[32]: 128 bytes")) << message;
  EXPECT_FALSE(Says(message, "f32[180]")) << message;
  EXPECT_FALSE(Says(message, "f32[250]")) << message;
  c.Leave();
  EXPECT_EQ(Refusal(executable.get(), x.get()), "");
}

TEST_F(SramTest, KeptAndRepeatedArgumentsTakeTheirOwnTiles) {
  const TensorInfo there = OnTile(3, 50);
  FakeProgram program = NeedingByTile({{3, 100}, {1, 600}}, there);
  program.info.arguments.push_back(there);
  program.info.donors = {0};
  auto executable = Load(program);
  auto x = Put(Vector(50)), y = Put(Vector(50));
  const auto refusal = [&](PJRT_Buffer* second, std::vector<int64_t> keep) {
    const auto outcome = Execute(executable.get(), {x.get(), second}, keep);
    return Get(outcome.results.at(0).get()).second;
  };
  // 200 bytes of tile 3 are needed in addition to both arguments.
  const TensorInfo other = OnTile(3, 106), elsewhere = OnTile(1, 230);
  Resident a, b;
  EXPECT_EQ(refusal(y.get(), {0}), "");
  EXPECT_TRUE(device()->sram.Enter(elsewhere, &a).ok());
  EXPECT_TRUE(device()->sram.Enter(other, &b).ok());  // leaves 200
  const std::string kept = refusal(y.get(), {0});
  EXPECT_TRUE(Says(kept, "needs 400 bytes of tile 3's SRAM")) << kept;
  y->Delete();
  const std::string twice = refusal(x.get(), {0});
  EXPECT_TRUE(Says(twice, "needs 600 bytes of tile 3's SRAM")) << twice;
  EXPECT_FALSE(x->IsDeleted());
  auto z = Put(Vector(50));
  EXPECT_EQ(refusal(z.get(), {}), "");
  EXPECT_TRUE(x->IsDeleted());
}

TEST_F(SramTest, ResultsCountTileByTileBeforeTheyAreMade) {
  Sram& sram = device()->sram;
  const std::vector<TensorInfoPtr> results = {
      std::make_shared<const TensorInfo>(OnTile(1, 100)),
      std::make_shared<const TensorInfo>(OnTile(2, 150))};
  const SramNeed need{.result_tile_bytes = 400 + 600,
                      .result_bytes = 400 + 600,
                      .results = results};
  const TensorInfo first = OnTile(1, 160), second = OnTile(2, 110);
  Resident a, b, result;
  {
    Sram::Room room;
    EXPECT_EQ(sram.Admit(need, {}, {}, &room).bytes, 0);
    const std::string message(sram.Enter(first, &a).message());
    EXPECT_TRUE(Says(message, "640 bytes of tile 1's SRAM")) << message;
    EXPECT_FALSE(sram.Enter(second, &a).ok());
    sram.Enter(*results[0], &result, &room);
    EXPECT_FALSE(sram.Enter(first, &a).ok());
  }
  EXPECT_TRUE(sram.Enter(second, &b).ok());
  EXPECT_FALSE(sram.Enter(first, &a).ok());
  result.Leave();
  EXPECT_TRUE(sram.Enter(first, &a).ok());
  EXPECT_EQ(sram.figures().in_use, 4 * (160 + 110));
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
