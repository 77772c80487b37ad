#include "jaxlib/ipu/runtime/plan/product_splits.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace ipu::plan {
namespace {

// Bounds are less than cycles by more than rounding errors.
constexpr double kNearlyOne = 1 - 1e-12;

double Exchange(const Product& p, double bytes) {
  const double words = std::ceil(bytes / p.exchange_rate);
  return words > 0 ? words + p.route_cycles : 0;
}

// Bytes of both operands as carried by a tile's bus.
//
// Tiles with the same rows are adjacent (`matmul.partition`), as are poplin's
// output channels, and a pair that receives the same data does so at twice the
// rate (poplin/ExchangeEstimator.hpp) [S].
double Received(const Product& p, const Space& parts, double lhs, double rhs) {
  const auto [b, m, n, k] = parts;
  if (p.tiles_per_bus != 1) {
    if (n > 1 && n % 2 == 0) lhs /= 2;
    if (n == 1 && k == 1 && m % 2 == 0) rhs /= 2;
  }
  return lhs + rhs;
}

// The vertex for a block, with the cast of its sums if it has `whole` ones.
double Vertex(const Product& p, const Block& block, bool whole) {
  const double outputs = block.batch * block.rows * block.columns;
  if (p.loop_term) {
    return (p.loop_term * block.depth + p.loop_output) *
               std::ceil(outputs / p.unit.workers) * p.unit.workers +
           p.loop_fixed;
  }
  const Block turned = block.Turned();
  const auto cheaper = [&](auto cycles, const DotUnit& unit) {
    return std::min(cycles(unit, block), cycles(unit, turned));
  };
  double partials =
      std::min(cheaper(AmpCycles, p.unit), cheaper(HmacCycles, p.unit));
  if (whole) partials += p.cast_fixed + p.cast_output * outputs;
  double found = std::min(partials, cheaper(OuterCycles, p.unit));
  if (p.vector) {
    found = std::min(found,
                     SharedCycles(p.unit, block.columns == 1 ? block : turned));
  }
  if (whole && p.rounds) {
    DotUnit unit = p.unit;
    unit.f16_sums = 1;
    found = std::min(found, cheaper(HmacCycles, unit));
    if (block.depth <= ChainOf(unit)) {
      found = std::min(found, cheaper(AmpCycles, unit));
    }
  }
  return found;
}

// The addition of `fan` partials of each of `share` elements, without what is
// fixed.
double Adding(const Product& p, double share, double fan) {
  const double more = p.adding_partial * (fan - 1);
  // Several workers may share an element: each of them adds, and starts.
  if (share < p.adding_shared) return more * share;
  const double vectors = std::ceil(share / p.adding_width);
  return p.unit.workers *
         (p.adding_start +
          std::ceil(vectors / p.unit.workers) * (more + p.adding_step));
}

// The combination of `left` partials of each of `share` elements, in stages
// (plan/combine.py).
double Combination(const Product& p, double share, double left) {
  double total = 0;
  int stages = 1 + (left >= p.two_stages) + (left >= p.three_stages);
  for (; left > 1; --stages) {
    const double fan = std::ceil(std::pow(left, 1.0 / stages) - 1e-9);
    const double groups = stages > 1 ? std::ceil(left / fan) : 1;
    const double largest = std::ceil(left / groups);
    const double sent = share * p.sum_bytes;
    share = std::ceil(share / std::max(std::floor(left / groups), 1.0));
    const double received = share * (largest - 1) * p.sum_bytes;
    total += p.adding_fixed + p.sync_cycles + Adding(p, share, largest);
    total += Exchange(p, std::max(received, sent));
    left = groups;
  }
  return total;
}

Split Price(const Product& p, const Space& parts) {
  const auto block = [&](double extent, int64_t count) {
    return static_cast<double>(CeilDiv(static_cast<int64_t>(extent), count));
  };
  const Block cell = {block(p.b, parts[0]), block(p.m, parts[1]),
                      block(p.n, parts[2]), block(p.k, parts[3])};
  const double outputs = cell.batch * cell.rows * cell.columns;
  const double left = cell.batch * cell.depth * cell.rows;
  const double right = cell.batch * cell.depth * cell.columns;
  const bool whole = parts[3] == 1;

  Split split = {parts, 0, 0, 0};
  split.cycles =
      p.launch + p.sync_cycles + p.lhs_casting * left + p.rhs_casting * right;
  split.cycles += Vertex(p, cell, whole);
  split.cycles += Combination(p, outputs, static_cast<double>(parts[3]));
  split.cycles += Exchange(
      p, Received(p, parts, p.lhs_charged * left, p.rhs_charged * right));
  split.cycles *= kNearlyOne;

  // A tile's partials stay in SRAM while its share of the other tiles' partials
  // arrives, beside the sums of the steps before. A tile that has all terms of
  // its sums adds to them in place, where poplin's planner has a buffer for
  // each step's partials (`addInPlace`).
  split.bytes = left * p.lhs_bytes + right * p.rhs_bytes;
  split.bytes += outputs * p.sum_bytes * (whole ? 1 : 2 + p.more_sums);
  if (whole || p.more_sums) split.bytes += outputs * p.cast_bytes;
  split.bytes += p.further_bytes;
  return split;
}

}  // namespace

std::vector<Split> Rank(const Product& p, size_t count) {
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  const std::vector<Space> candidates = Candidates(
      whole(p.tiles), {whole(p.b), whole(p.m), whole(p.n), whole(p.k)},
      {whole(p.grain_m), whole(p.grain_n), whole(p.grain_k)});
  std::vector<Split> splits;
  splits.reserve(candidates.size());
  for (const Space& parts : candidates) {
    splits.push_back(Price(p, parts));
    splits.back().number = splits.size() - 1;
  }
  const auto key = [&](const Split& s) {
    const bool fits = s.bytes <= p.room;
    return std::tuple(!fits, fits ? s.cycles : s.bytes, s.number);
  };
  std::partial_sort(
      splits.begin(), splits.begin() + std::min(count, splits.size()),
      splits.end(),
      [&](const Split& a, const Split& b) { return key(a) < key(b); });
  return splits;
}

}  // namespace ipu::plan
