// Arrays that move to the layout that a program wants. The test's machine has
// four tiles of 1024 bytes.

#include "jaxlib/ipu/runtime/pjrt/array_layouts.h"

#include "jaxlib/ipu/runtime/pjrt/testing.h"

namespace ipu::testing {
namespace {

constexpr int64_t kCount = 100;

// The layout of `kCount` floats in blocks of so many bytes, one a tile.
ArrayLayoutPtr LayoutOf(int64_t tile_bytes, double from_default,
                        double to_default) {
  const std::vector<int64_t> mapping = {0, 1, kCount, 1, tile_bytes / 4,
                                        1, 1, 0,      0};
  return std::make_shared<const ArrayLayout>(
      ArrayLayout{mapping, tile_bytes, from_default, to_default, 0, 0});
}

class ArrayLayoutsTest : public PjrtTest {
 protected:
  // A program that wants its argument in a layout and leaves its result in
  // another one.
  std::unique_ptr<PJRT_LoadedExecutable> Wanting(ArrayLayoutPtr argument,
                                                 ArrayLayoutPtr result,
                                                 int64_t peak = 0) {
    FakeProgram program = Increment(kCount);
    program.info.arguments[0].layout = std::move(argument);
    program.info.results[0].layout = std::move(result);
    program.info.peak_tile_bytes = peak;
    return Load(std::move(program));
  }

  static double Cycles(PJRT_LoadedExecutable* executable, PJRT_Buffer* x) {
    PJRT_Buffer* const arguments[] = {x};
    return FindMoves(*executable->Get(), arguments).cycles;
  }

  int64_t InUse() {
    const Sram::Figures figures = device()->sram.figures();
    return figures.limit / 4 - figures.free / 4;  // of the fullest tile
  }

  static constexpr int64_t kDefault = 104;  // 25 floats in vectors of 8 bytes
  const ArrayLayoutPtr a_ = LayoutOf(200, 10, 1);
  const ArrayLayoutPtr b_ = LayoutOf(300, 20, 2);
};

TEST_F(ArrayLayoutsTest, AnArrayMovesOnceAndStays) {
  auto plain = Wanting(nullptr, nullptr);
  auto wants_a = Wanting(a_, nullptr);
  auto also_a = Wanting(LayoutOf(200, 10, 1), nullptr);
  auto wants_b = Wanting(b_, nullptr);
  auto x = Put(std::vector<float>(kCount));
  EXPECT_EQ(Cycles(plain.get(), x.get()), 0);
  EXPECT_EQ(Cycles(wants_a.get(), x.get()), 10);
  Execute(wants_a.get(), {x.get()});
  EXPECT_EQ(Cycles(wants_a.get(), x.get()), 0);
  EXPECT_EQ(Cycles(also_a.get(), x.get()), 0);
  EXPECT_EQ(Cycles(wants_b.get(), x.get()), 1 + 20);
  EXPECT_EQ(Cycles(plain.get(), x.get()), 1);
  Execute(plain.get(), {x.get()});
  EXPECT_EQ(x->layout, nullptr);
}

TEST_F(ArrayLayoutsTest, AnArrayThatIsPassedTwiceMovesOnce) {
  FakeProgram program = Increment(kCount);
  program.info.arguments.push_back(program.info.arguments[0]);
  for (TensorInfo& argument : program.info.arguments) argument.layout = a_;
  auto executable = Load(std::move(program));
  auto x = Put(std::vector<float>(kCount)), y = Put(std::vector<float>(kCount));
  PJRT_Buffer* const same[] = {x.get(), x.get()};
  EXPECT_EQ(FindMoves(*executable->Get(), same).cycles, 10);
  PJRT_Buffer* const others[] = {x.get(), y.get()};
  EXPECT_EQ(FindMoves(*executable->Get(), others).cycles, 2 * 10);
}

TEST_F(ArrayLayoutsTest, ResultsHaveTheLayoutOfTheirProgram) {
  auto step = Wanting(a_, a_);
  auto x = Put(std::vector<float>(kCount));
  Outcome outcome = Execute(step.get(), {x.get()});
  EXPECT_EQ(Cycles(step.get(), outcome.results[0].get()), 0);
}

TEST_F(ArrayLayoutsTest, SramCountsTheFullestTileOfTheLayout) {
  auto x = Put(std::vector<float>(kCount));
  EXPECT_EQ(InUse(), kDefault);
  auto wants_a = Wanting(a_, b_);
  Outcome outcome = Execute(wants_a.get(), {x.get()});
  EXPECT_EQ(InUse(), 200 + 300);
  x.reset();
  EXPECT_EQ(InUse(), 300);
  outcome.results.clear();
  EXPECT_EQ(InUse(), 0);
}

TEST_F(ArrayLayoutsTest, AnArrayThatMovesTakesTheTilesOfItsNewLayout) {
  auto on_first_tile = Wanting(LayoutOf(400, 0, 0), nullptr);
  auto on_all = Wanting(nullptr, nullptr);
  auto x = Put(std::vector<float>(kCount)), y = Put(std::vector<float>(kCount));
  auto others = Put(std::vector<float>(4 * 90));  // 360 bytes of each tile
  const auto there = std::make_shared<const ArrayLayout>(
      ArrayLayout{{1, 1, 130, 1, 130, 1, 0, 0, 0}, 520});
  TensorInfo large = Floats(130);  // all on tile 1
  large.layout = there;
  large.tile_bytes = there->tile_bytes;
  Resident resident;
  const Status refused = device()->sram.Enter(large, &resident);
  EXPECT_NE(std::string(refused.message()).find("of tile 1's SRAM"),
            std::string::npos)
      << refused.message();
  Execute(on_first_tile.get(), {x.get()});
  EXPECT_TRUE(device()->sram.Enter(large, &resident).ok());
  // Now there is no room on tile 1 for it to move back.
  Outcome outcome = Execute(on_all.get(), {x.get()});
  const std::string message = Get(outcome.results[0].get()).second;
  EXPECT_NE(message.find("of tile 1's SRAM"), std::string::npos) << message;
  EXPECT_NE(x->layout, nullptr);
  resident.Leave();
  outcome = Execute(on_all.get(), {x.get()});
  EXPECT_EQ(Get(outcome.results[0].get()).second, "");
  EXPECT_EQ(x->layout, nullptr);
}

TEST_F(ArrayLayoutsTest, HostMemoryHasNoLayouts) {
  auto step = Wanting(a_, a_);
  auto x = Put(std::vector<float>(kCount));
  Outcome outcome = Execute(step.get(), {x.get()});
  PJRT_Buffer_CopyToMemory_Args args = {};
  args.buffer = outcome.results[0].get();
  args.dst_memory = &device()->host_memory;
  Check(api_->PJRT_Buffer_CopyToMemory(&args));
  std::unique_ptr<PJRT_Buffer> y(args.dst_buffer);
  EXPECT_EQ(y->layout, nullptr);
}

TEST_F(ArrayLayoutsTest, AnArrayThatIsDeletedMeanwhileDoesNotCount) {
  auto wants_a = Wanting(a_, nullptr);
  auto x = Put(std::vector<float>(kCount));
  PJRT_Buffer* const arguments[] = {x.get()};
  const ArgumentMoves moves = FindMoves(*wants_a->Get(), arguments);
  x->Delete();
  {
    Sram::Room results;
    EXPECT_EQ(device()->sram.Admit({}, moves.moves, {}, &results).bytes, 0);
  }
  EXPECT_EQ(InUse(), 0);
}

TEST_F(ArrayLayoutsTest, AnArrayStaysInPlaceIfTheProgramDoesNotFit) {
  auto x = Put(std::vector<float>(kCount));
  auto others = Put(std::vector<float>(4 * 150));  // 600 bytes of each tile
  auto large = Wanting(a_, nullptr, 800);
  Outcome outcome = Execute(large.get(), {x.get()});
  EXPECT_NE(Get(outcome.results[0].get()).second, "");
  EXPECT_EQ(x->layout, nullptr);
  // Needs no more than its argument, which exists twice while it moves.
  auto wide = Wanting(LayoutOf(400, 0, 0), nullptr, 400);
  outcome = Execute(wide.get(), {x.get()});
  EXPECT_NE(Get(outcome.results[0].get()).second, "");
  EXPECT_EQ(InUse(), kDefault + 600);
  others.reset();
  outcome = Execute(wide.get(), {x.get()});
  EXPECT_EQ(Get(outcome.results[0].get()).second, "");
  EXPECT_EQ(InUse(), 400 + kDefault);
}

}  // namespace
}  // namespace ipu::testing
