#include "jaxlib/ipu/runtime/plan/dot_cycles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ipu::plan {
namespace {

// Weights of a convolution unit: a chain of 4, each 64 bits wide
// (poplin/PerformanceEstimation.hpp) [S].
constexpr double kChain = 4;
// A MultiVertex, and a reduction's worker with its regions, one for each output
// (codelets/_cycles.py, codelets/reduce.py) [S].
constexpr double kMultiVertex = 11, kRegionStart = 17, kPerRegion = 12;

double VectorOf(const DotUnit& unit) { return unit.f16 ? 4 : 2; }

// Convolution units in use. f16 with f32 partials has half the units of f16
// with f16 partials; the target's rates determine their number.
double UnitsOf(const DotUnit& unit) {
  if (!unit.f16) return unit.fp32_macs;
  const double units = std::floor(unit.fp16_macs / kChain);
  return unit.f16_sums && unit.coefficient_load_bytes >= 16 ? 2 * units : units;
}

// A worker's cycles on `rows` rows, f16 operands.
//
// createConvPartial1x1 in poplin/PerformanceEstimation.hpp [S]. Keeping state
// between calls saves 7.
double F16Worker(double rows, bool zeroing) {
  if (rows >= 3) return (zeroing ? 37 : 38) + 4 * (rows - 3) - 7;
  const double few = rows == 0 ? 21 : rows == 1 ? 32 : 41;
  return few + !zeroing - 7;
}

// Like F16Worker, for f32 operands [S].
double F32Worker(double rows, double units, bool zeroing) {
  const double zero = zeroing ? (units >= 16 ? 8 : 4) : 0;
  const double z = zeroing ? 2 : 0;
  if (rows >= 3) return 46 + z + zero * rows + 8 * (rows - 3);
  if (rows == 0) return 24;
  return rows == 1 ? 47 + z + zero : 46 + z + 2 * zero;
}

// Cycles of all workers over all rows for one set of weights.
double Pass(const DotUnit& unit, double rows, bool zeroing) {
  const double lowest = std::floor(rows / unit.workers);
  const double highest = std::ceil(rows / unit.workers);
  const auto worker = [&](double n) {
    return unit.f16 ? F16Worker(n, zeroing)
                    : F32Worker(n, UnitsOf(unit), zeroing);
  };
  // Two rows can take longer than three. A worker without rows exits at once.
  const double a = worker(highest), b = worker(lowest);
  const double slow = std::max(a, lowest == 0 ? 0 : b);
  const double fast = lowest == 0 ? 0 : std::min(a, b);
  return std::max(unit.workers * slow, unit.workers * fast + 14);
}

struct HorizontalMac {
  double start;    // Cycles of the supervisor.
  double worker;   // Of a worker, once for each column.
  double row;      // Of a dot product, without its terms.
  bool zeroes;     // Whether each column's partials are zeroed first.
  double columns;  // Columns that a worker takes at a time.

  static HorizontalMac Of(const DotUnit& unit) {
    if (!unit.f16) return {58 + 54, 16 + 19 + 16, 7 + 7, true, 1};
    if (unit.f16_sums) return {65 + 60 + 36, 10 + 19 + 16, 7 + 10, true, 2};
    return {55 + 54 + 90, 1 + 13 + 1 + 16, 2 + 6, false, 1};
  }

  // Cycles of `batch` products if in each of `columns` the slowest worker has
  // `rows` dot products, `terms` vectors of terms in all.
  double Cycles(double workers, double batch, double all_columns, double rows,
                double terms) const {
    double column = 10 + workers * (worker + rows * row + terms);
    if (zeroes) column += workers * (std::ceil(rows / 2) + 5);
    return start +
           batch * (23 + 15 + std::ceil(all_columns / columns) * column);
  }
};

}  // namespace

double ChainOf(const DotUnit& unit) { return kChain * (unit.f16 ? 4 : 2); }

double AmpCycles(const DotUnit& unit, const Block& block) {
  const double units = UnitsOf(unit), chain = ChainOf(unit);
  const double item = unit.f16 ? 2 : 4;
  const double load = units * chain * item / unit.coefficient_load_bytes;
  const double in_groups = std::ceil(block.depth / chain);
  const double out_groups = std::ceil(block.columns / units);
  const double first = Pass(unit, block.rows, true);
  const double others = Pass(unit, block.rows, false);
  const double launch =
      50 + unit.workers * (7 + 3 * (in_groups * block.batch - 1));
  const double accumulated =
      (in_groups - 1) * (15 + out_groups * (19 + 6 + load + others));
  const double zeroed = 11 + out_groups * (18 + 7 + load + first);
  return launch + block.batch * (13 + accumulated + zeroed);
}

double HmacCycles(const DotUnit& unit, const Block& block) {
  const double rows = std::ceil(block.rows / unit.workers);
  const double terms = rows * std::ceil(block.depth / VectorOf(unit));
  return HorizontalMac::Of(unit).Cycles(unit.workers, block.batch,
                                        block.columns, rows, terms);
}

double SharedCycles(const DotUnit& unit, const Block& block) {
  const double row = std::ceil(block.depth / VectorOf(unit));
  const double all = block.rows * row;
  const double share = std::ceil(all / unit.workers);
  double pieces = 0;
  for (double worker = 0; worker < unit.workers; ++worker) {
    const double started = std::floor(worker * share / row);
    const double ended = std::ceil(std::min((worker + 1) * share, all) / row);
    pieces = std::max(pieces, ended - started);
  }
  const double dots = HorizontalMac::Of(unit).Cycles(unit.workers, block.batch,
                                                     1, pieces, share);
  const double parts = std::ceil((row - 1) / share) + 1;
  const double adding = (std::ceil(parts / unit.sum_vector) + kPerRegion) *
                            std::ceil(block.batch * block.rows / unit.workers) +
                        kRegionStart;
  return dots + kMultiVertex + unit.workers * adding;
}

double OuterCycles(const DotUnit& unit, const Block& block) {
  if (block.depth != 1) return std::numeric_limits<double>::infinity();
  const double mine = std::ceil(block.rows / unit.workers);
  const double group = unit.f16 ? 10 + mine * 20 : 11 + mine * 14;
  const double groups = block.batch * std::ceil(block.columns / VectorOf(unit));
  return unit.workers * (25 + groups * group);
}

}  // namespace ipu::plan
