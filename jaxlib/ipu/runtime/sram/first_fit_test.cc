#include "jaxlib/ipu/runtime/sram/first_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "jaxlib/ipu/runtime/sram/functions.h"

namespace ipu::sram {
namespace {

bool Meet(Lifetime a, Lifetime b) {
  return std::ranges::any_of(a, [&](const Interval& x) {
    return std::ranges::any_of(b, [&](const Interval& y) {
      return x.begin <= y.end && y.begin <= x.end;
    });
  });
}

// Up to three intervals.
std::vector<Interval> Draw(std::mt19937& random) {
  std::vector<Interval> life;
  int64_t time = random() % 20;
  for (uint32_t n = random() % 3 + 1; n > 0; --n) {
    const int64_t end = time + random() % 10;
    life.push_back({time, end});
    time = end + 1 + random() % 10;
  }
  return life;
}

TEST(FirstFitTest, NoBytesAreUsedTwice) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::vector<Interval>> lives(random() % 30 + 1);
    std::vector<Piece> pieces;
    for (std::vector<Interval>& life : lives) {
      life = Draw(random);
      const int64_t step = int64_t{4} << random() % 3;
      pieces.push_back({life, step * (random() % 9), step, random() % 50});
    }
    // The last piece is there already.
    const Piece last = pieces.back();
    pieces.pop_back();
    const int64_t end = 32 + std::max(last.size, last.step);
    const std::vector<Placed> taken = {{last.life, 32, end}};
    const std::vector<int64_t> found =
        FirstFit(pieces, taken, /*base=*/16, /*count=*/random() % 30);
    ASSERT_EQ(found.size(), pieces.size());
    for (size_t a = 0; a < pieces.size(); ++a) {
      const Piece& piece = pieces[a];
      EXPECT_GE(found[a], 16);
      if (piece.size == 0) continue;
      EXPECT_EQ(found[a] % piece.step, 0);
      const auto apart = [&](const Piece& other, int64_t at) {
        return found[a] + piece.size <= at || at + other.size <= found[a] ||
               !Meet(piece.life, other.life) || other.size == 0;
      };
      EXPECT_TRUE(apart(last, 32));
      for (size_t b = 0; b < a; ++b) EXPECT_TRUE(apart(pieces[b], found[b]));
    }
  }
}

TEST(FirstFitTest, TakesFlatIntegers) {
  // Two at once, a third one after the first, beside 8 bytes that are taken.
  const std::vector<int64_t> lives = {0, 3, 0, 9, 4, 9, 0, 1, 8, 9};
  const std::vector<int64_t> intervals = {1, 1, 1, 2};
  const std::vector<int64_t> figures = {16, 8, 3, 8, 8, 2, 16, 8, 1, 0, 8};
  std::vector<int64_t> addresses(3);
  EXPECT_EQ(ipu_first_fit(lives.data(), intervals.data(), 3, 1, figures.data(),
                          /*base=*/0, /*count=*/3, addresses.data()),
            0);
  EXPECT_EQ(addresses, (std::vector<int64_t>{8, 24, 8}));
}

}  // namespace
}  // namespace ipu::sram
