#include "jaxlib/ipu/runtime/plan/functions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "jaxlib/ipu/runtime/plan/product_splits.h"

namespace ipu::plan {
namespace {

// f32 on an ipu2 of so many tiles.
Product SomeProduct(double tiles) {
  Product p = {};
  p.tiles = tiles;
  p.b = 1, p.m = 48, p.n = 32, p.k = 64;
  p.grain_m = p.grain_n = p.grain_k = 1;
  p.lhs_bytes = p.rhs_bytes = p.lhs_charged = p.rhs_charged = 4;
  p.sum_bytes = 4, p.room = 300'000;
  p.tiles_per_bus = 2, p.exchange_rate = 4;
  p.route_cycles = 23, p.sync_cycles = 120, p.launch = 37;
  p.unit = {0, 0, 2, 6, 16, 32, 16};
  p.adding_fixed = 115, p.adding_start = 20, p.adding_width = 4;
  p.adding_step = 8, p.adding_partial = 2;
  p.two_stages = 16, p.three_stages = 125;
  return p;
}

const double* Numbers(const Product& p) {
  return reinterpret_cast<const double*>(&p);
}
constexpr size_t kNumbers = sizeof(Product) / sizeof(double);

TEST(PlanFunctionsTest, RanksByFitThenCycles) {
  Product p = SomeProduct(24);
  p.room = 8000;
  const std::vector<Split> splits = Rank(p, 1000);
  bool fitted = true;
  size_t fit = 0;
  for (size_t i = 0; i < splits.size(); ++i) {
    const bool fits = splits[i].bytes <= p.room;
    EXPECT_LE(fits, fitted);
    if (i > 0 && fits) {
      EXPECT_LE(splits[i - 1].cycles, splits[i].cycles);
    }
    if (i > 0 && !fits && !fitted) {
      EXPECT_LE(splits[i - 1].bytes, splits[i].bytes);
    }
    fitted = fits;
    fit += fits;
  }
  EXPECT_GT(fit, 0u);
  EXPECT_LT(fit, splits.size());
}

TEST(PlanFunctionsTest, FirstSplitsAreThoseOfAll) {
  const Product p = SomeProduct(24);
  std::vector<double> all(7 * 1000), few(7 * 3);
  const int64_t count =
      ipu_product_splits(Numbers(p), kNumbers, all.data(), 1000);
  EXPECT_GT(count, 3);
  EXPECT_LT(count, 1000);
  EXPECT_EQ(ipu_product_splits(Numbers(p), kNumbers, few.data(), 3), count);
  all.resize(few.size());
  EXPECT_EQ(few, all);
}

TEST(PlanFunctionsTest, RefusesWhatIsNoProduct) {
  Product p = SomeProduct(24);
  double split[7];
  EXPECT_EQ(ipu_product_splits(Numbers(p), kNumbers - 1, split, 1), -1);
  for (double* number : {&p.tiles, &p.b, &p.k, &p.grain_n}) {
    const double before = *number;
    for (const double wrong :
         {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
      *number = wrong;
      EXPECT_EQ(ipu_product_splits(Numbers(p), kNumbers, split, 1), -1);
    }
    *number = before;
  }
  EXPECT_GT(ipu_product_splits(Numbers(p), kNumbers, split, 1), 0);
  EXPECT_EQ(ipu_dot_cycles(split, 7, split), -1);
  const int64_t none[] = {4, 0, 8, 8};
  int64_t parts[2];
  EXPECT_EQ(ipu_distribute(none, 4, parts), -1);
}

TEST(PlanFunctionsTest, CutsOuterDimensionsFirst) {
  const int64_t given[] = {4, 1472, 8, 8};
  int64_t parts[2];
  EXPECT_EQ(ipu_distribute(given, 4, parts), 0);
  EXPECT_EQ(parts[0], 4);
  EXPECT_EQ(parts[1], 1);
}

}  // namespace
}  // namespace ipu::plan
