#include "jaxlib/ipu/runtime/moves/moved_elements.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "jaxlib/ipu/runtime/moves/functions.h"

namespace ipu::moves {
namespace {

Layout Linear(int64_t extent, int64_t block) {
  return {{{extent, block, 1}}, {}, 0};
}

// For each tile, the elements of a tensor that it holds.
std::vector<std::set<int64_t>> Held(const Layout& layout, size_t tiles) {
  std::vector<std::set<int64_t>> held(tiles);
  const Coordinates at = layout.Locate(tiles, layout.factors);
  const int64_t size = NumElements(layout.factors);
  for (size_t t = 0; t < tiles; ++t) {
    for (int64_t i = 0; i < size && at.active[t]; ++i) {
      int64_t rest = i;
      bool holds = true;
      for (size_t k = layout.factors.size(); k-- > 0;) {
        const Factor& f = layout.factors[k];
        holds &= rest % f.extent / f.block == at.parts[k][t];
        rest /= f.extent;
      }
      if (holds) held[t].insert(i);
    }
  }
  return held;
}

// Compares with a loop over all elements and tiles.
void Check(const MoveEnd& source, const MoveEnd& destination,
           const Ints& shape) {
  constexpr size_t kTiles = 12;
  const auto from = Held(source.layout, kTiles);
  const auto to = Held(destination.layout, kTiles);
  std::vector<int64_t> received(kTiles), sent(kTiles), kept(kTiles);
  int64_t size = 1;
  for (const int64_t n : shape) size *= n;
  for (int64_t n = 0; n < size; ++n) {
    int64_t rest = n, near = source.offset, far = destination.offset;
    for (size_t d = shape.size(); d-- > 0;) {
      near += rest % shape[d] * source.strides[d];
      far += rest % shape[d] * destination.strides[d];
      rest /= shape[d];
    }
    for (size_t t = 0; t < kTiles; ++t) {
      const bool has = from[t].contains(near), needs = to[t].contains(far);
      kept[t] += has && needs;
      received[t] += needs && !has;
      sent[t] += has && !needs;
    }
  }
  Ints figures(kMoveFigures * kTiles);
  CountMovedElements(source, destination, shape, false, kTiles, figures.data());
  for (size_t t = 0; t < kTiles; ++t) {
    EXPECT_EQ(figures[kReceived * kTiles + t], received[t]) << t;
    EXPECT_EQ(figures[kSent * kTiles + t], sent[t]) << t;
    EXPECT_EQ(figures[kKept * kTiles + t], kept[t]) << t;
  }
}

TEST(MovedElementsTest, BlocksOfOtherSizes) {
  Check({Linear(60, 7), 0, {1}}, {Linear(60, 5), 0, {1}}, {60});
}

TEST(MovedElementsTest, ATranspose) {
  const Layout rows = {{{4, 1, 1}, {6, 6, 0}}, {}, 0};
  const Layout columns = {{{6, 2, 1}, {4, 4, 0}}, {}, 0};
  Check({rows, 0, {6, 1}}, {columns, 0, {1, 4}}, {4, 6});
}

TEST(MovedElementsTest, BoundsWhereBothEndsCutInAnotherOrder) {
  Ints figures(kMoveFigures * 4);
  CountMovedElements({Linear(24, 6), 0, {6, 1}}, {Linear(24, 8), 0, {1, 4}},
                     {4, 6}, false, 4, figures.data());
  EXPECT_EQ(Ints(figures.begin(), figures.begin() + 4), (Ints{8, 8, 8, 0}));
  EXPECT_EQ(Ints(figures.begin() + 4, figures.begin() + 8), (Ints{6, 6, 6, 6}));
}

TEST(MovedElementsTest, AShiftedSlice) {
  Check({Linear(60, 6), 7, {1}}, {Linear(50, 5), 0, {1}}, {50});
}

TEST(MovedElementsTest, AReversal) {
  Check({Linear(40, 4), 39, {-1}}, {Linear(40, 4), 0, {1}}, {40});
}

TEST(MovedElementsTest, GridsOnOtherTiles) {
  const Layout rows = {{{6, 2, 1}, {4, 4, 0}}, {}, 0};
  const Layout cells = {{{6, 3, 2}, {4, 2, 1}}, {}, 3};
  Check({rows, 0, {4, 1}}, {cells, 0, {4, 1}}, {6, 4});
}

TEST(MovedElementsTest, TilesOnBothSidesOfAGapHoldNothing) {
  const Coordinates at =
      Layout{{{4, 1, 3}}, {{2, 1}}, 1}.Locate(14, {{4, 1, 3}});
  EXPECT_EQ(at.active,
            (std::vector<uint8_t>{0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(at.parts[0][10], 3);
}

TEST(MovedElementsTest, AnEmptyMoveMovesNothing) {
  const Layout grid = {{{4, 1, 1}, {6, 6, 0}}, {}, 0};
  const Layout rows = {{{24, 2, 1}}, {}, 0};
  for (const Ints& shape : {Ints{0, 6}, Ints{4, 0}, Ints{0, 0}}) {
    Check({grid, 0, {6, 1}}, {grid, 0, {6, 1}}, shape);
    Check({rows, 0, {6, 1}}, {grid, 0, {6, 1}}, shape);
    Check({rows, 0, {6, 1}}, {rows, 0, {6, 1}}, shape);
  }
}

TEST(MovedElementsTest, ReadsFlatMoves) {
  // 8 elements, from blocks of 4 to blocks of 2.
  const Ints move = {1, 8, 1, 0, 0, 8, 4, 1, 0, 1, 1, 0, 0, 8, 2, 1, 0, 1};
  Ints bytes(kMoveFigures * 4), ends(13);
  EXPECT_EQ(ipu_moved_bytes(move.data(), move.size(), 0, 4, 4, bytes.data(),
                            ends.data()),
            0);
  EXPECT_EQ(Ints(bytes.begin(), bytes.begin() + 4), (Ints{0, 8, 8, 8}));
  // A sender of one segment to each of two others, and a receiver of one.
  EXPECT_EQ(ends, (Ints{2, 2, 4, 4, 1, 1, 2, 2, 1, 1, 0, 1, 2}));
}

TEST(MovedElementsTest, RejectsWhatIsNoMove) {
  const Ints move = {1, 8, 1, 0, 0, 8, 4, 1, 0, 1, 1, 0, 0, 8, 2, 1, 0, 1};
  Ints bytes(kMoveFigures * 4), ends(13);
  const auto ask = [&](const Ints& asked, size_t count) {
    return ipu_moved_bytes(asked.data(), count, 0, 4, 4, bytes.data(),
                           ends.data());
  };
  for (size_t count = 0; count < move.size(); ++count) {
    EXPECT_EQ(ask(move, count), -1);
  }
  Ints empty = move;
  empty[6] = 0;  // a block
  EXPECT_EQ(ask(empty, empty.size()), -1);
  empty[6] = 4;
  empty[2] = int64_t{1} << 60;  // factors
  EXPECT_EQ(ask(empty, empty.size()), -1);
}

}  // namespace
}  // namespace ipu::moves
