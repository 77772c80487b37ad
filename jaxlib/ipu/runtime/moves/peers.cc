#include "jaxlib/ipu/runtime/moves/peers.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>

namespace ipu::moves {
namespace {

// A dimension that steps along a factor.
struct Stepping {
  int64_t step, extent;
  HeldIndices held;

  auto operator<=>(const Stepping&) const = default;
};

bool SameFactor(const Factor& a, const Factor& b) {
  return a.extent == b.extent && a.block == b.block && a.stride == b.stride;
}

// The number of the lowest element of its tensor that a move accesses.
int64_t Lowest(const MoveEnd& end, const Ints& shape) {
  int64_t lowest = end.offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    lowest += std::min<int64_t>(end.strides[d] * (shape[d] - 1), 0);
  }
  return lowest;
}

// The same with indices counted from the dimension's end if its stride is
// negative: intervals then begin at multiples of their length only if that
// divides the extent.
HeldIndices Backwards(HeldIndices held, int64_t stride, int64_t extent) {
  if (stride <= 0 && held.even) held.even = extent % held.indices == 0;
  return held;
}

// Like FindHeldIndices, regardless of the other end.
HeldIndices HeldAtOneEnd(const MoveEnd& end, const Ints& shape, size_t d) {
  const int64_t extent = shape[d], stride = std::abs(end.strides[d]);
  if (extent == 1 || !stride) return {1, 1, true};
  const auto [f, unit] = FactorAt(end.layout, stride);
  if (f.parts() <= 1) return {extent, extent, true};
  if (stride % unit) return {extent, extent, false};
  const int64_t step = stride / unit, lowest = Lowest(end, shape);
  int64_t start = FloorMod(FloorDiv(lowest, unit), f.extent);
  // How far dimensions of smaller strides reach along this factor, or carry
  // into it, in elements.
  int64_t inside = FloorMod(lowest, unit);
  for (size_t e = 0; e < shape.size(); ++e) {
    const int64_t other = std::abs(end.strides[e]);
    if (other < stride) inside += (shape[e] - 1) * other;
  }
  inside -= inside % unit;
  bool even = start % f.block == 0 && f.block % step == 0 && inside < stride;
  // Dimensions of longer strides have to lead to the beginning of blocks.
  for (size_t e = 0; e < shape.size(); ++e) {
    const int64_t other = end.strides[e];
    even &= !(other % (unit * f.block) && other % (unit * f.extent) &&
              shape[e] > 1 && std::abs(other) > stride);
  }
  int64_t count = (f.block - 1) / step + 1 + (inside > 0 && !even);
  const int64_t row = unit * f.extent;
  bool elsewhere = false;
  int64_t grid = f.extent;
  for (size_t e = 0; e < shape.size(); ++e) {
    const int64_t other = std::abs(end.strides[e]);
    if (shape[e] <= 1 || other <= row) continue;
    elsewhere |= other % row != 0;
    grid = std::gcd(grid, other % unit ? 1 : other / unit);
  }
  if (elsewhere) {
    // Other indices of these dimensions begin elsewhere in the factor: take the
    // last such place, from which the dimension reaches farthest.
    start = f.extent - grid + start % grid;
  }
  const int64_t reach = start + (extent - 1) * step;
  if (reach >= f.extent) {
    // The digit wraps, and the tile holds such an interval of each turn.
    count *= (extent - 1) * step / f.extent + 2;
    return {std::min(count, extent), extent, false};
  }
  count = std::min(count, extent);
  return Backwards({count, count, even}, end.strides[d], extent);
}

// How far a tile's indices reach along a factor.
int64_t Reach(const std::vector<Stepping>& dims) {
  int64_t reach = 0;
  for (const Stepping& d : dims) reach += (d.held.span - 1) * d.step;
  return reach;
}

// The maximum number of a factor's parts that contain a tile's elements.
//
// `start` is the factor's lowest digit, and `carry` how far the inner factors
// carry into it. `dims` step along it, those of the largest step first. `over`
// says that an element reaches beyond the factor's end, where the digit wraps,
// and `wraps` that `carry` may come from the ends of two rows.
int64_t SpannedParts(const Factor& f, int64_t start, int64_t carry,
                     const std::vector<Stepping>& dims, bool over, bool wraps) {
  const bool several =
      carry || std::any_of(dims.begin(), dims.end(), [](const Stepping& d) {
        return d.held.indices > 1;
      });
  if (f.parts() <= 1 || !several) return 1;
  if (dims.size() == 1 && !carry && dims[0].held.even) {
    const int64_t width = dims[0].held.indices * dims[0].step;
    if (!(over && f.extent % width)) {
      if (!(f.block % width) && !(start % width)) return 1;
      if (!(width % f.block) && !(start % f.block)) {
        return std::min(width / f.block, f.parts());
      }
    }
  }
  // For every number of outer dimensions there is a bound: their indices are
  // counted one by one, the span of the inner dimensions as a whole.
  int64_t found = f.parts(), outer = 1;
  for (const Stepping& d : dims) outer *= d.held.intervals;
  // Blocks that a span may cover in part: the first, the last, the short one at
  // the factor's end, and those at the ends of rows.
  int64_t torn = 2 + (over && f.extent % f.block > 0);
  int64_t span = carry + Reach(dims);
  std::vector<Stepping> row;
  for (const Stepping& d : dims) {
    if (d.held.wraps && d.held.intervals == 1) row.push_back(d);
  }
  if (wraps || (!row.empty() && over)) {
    torn += 2;
  } else if (!row.empty()) {
    int64_t last = start;
    for (const Stepping& d : dims) last += (d.extent - 1) * d.step;
    const int64_t ends[] = {FloorMod(last + 1, f.block),
                            FloorMod(-start, f.block)};
    if (ends[0] || ends[1]) {
      // The first and last of n indices are n - 1 apart in one interval, and
      // one less in two intervals.
      torn += (ends[0] > 0) + (ends[1] > 0);
      span -= 1 + ends[0] + ends[1];
    }
  }
  if (!row.empty()) {
    // The inner dimensions reach as far at both ends of a row.
    span += carry + Reach(dims) - Reach(row);
  }
  for (const Stepping& d : dims) {
    found = std::min(found, outer * (FloorDiv(span, f.block) + torn));
    outer *= d.held.indices;
    span -= (d.held.span - 1) * d.step;
  }
  return std::min(found, outer * (FloorDiv(span, f.block) + torn));
}

}  // namespace

std::pair<Factor, int64_t> FactorAt(const Layout& layout, int64_t stride) {
  int64_t unit = NumElements(layout.factors);
  Factor found = {1, 1, 0};
  for (const Factor& f : layout.factors) {
    found = f;
    unit /= f.extent;
    if (unit <= stride) break;
  }
  return {found, unit};
}

HeldIndices FindHeldIndices(const MoveEnd& near, const MoveEnd& far,
                            const Ints& shape, size_t d) {
  HeldIndices found = HeldAtOneEnd(near, shape, d);
  if (found.even || found.indices == shape[d]) return found;
  const int64_t stride = std::abs(near.strides[d]);
  std::optional<std::pair<int64_t, size_t>> outer;  // the next one
  for (size_t e = 0; e < shape.size(); ++e) {
    const std::pair<int64_t, size_t> other = {std::abs(near.strides[e]), e};
    if (shape[e] > 1 && other.first > stride && (!outer || other < *outer)) {
      outer = other;
    }
  }
  if (!outer) return found;
  const auto [reach, e] = *outer;
  const auto [f, unit] = FactorAt(near.layout, reach);
  const auto [g, inner] = FactorAt(near.layout, stride);
  if (!SameFactor(f, g) || unit != inner)
    return found;  // cut by another factor
  // At the other end, the next row either follows this one or is elsewhere.
  const int64_t here = far.strides[d] * (near.strides[d] > 0 ? 1 : -1);
  const int64_t next = far.strides[e] * (near.strides[e] > 0 ? 1 : -1);
  const bool same_way = (here > 0 && next > 0) || (here < 0 && next < 0);
  const bool follows = same_way && std::abs(next) >= std::abs(here) * shape[d];
  found.intervals = follows ? 1 : 2;
  found.wraps = true;
  return found;
}

int64_t CountPeers(const std::vector<HeldIndices>& near, const MoveEnd& far,
                   const Ints& shape) {
  int64_t most = 1;
  for (const HeldIndices& held : near) most *= held.indices;
  int64_t tiles = 1, unit = 1;
  // How far the digits of a tile's elements (`carry`), and of all elements
  // (`beyond`), carry into the next outer factor.
  int64_t carry = 0, beyond = 0;
  bool wraps = false;  // whether `carry` may come from the ends of two rows
  const int64_t lowest = Lowest(far, shape);
  for (size_t k = far.layout.factors.size(); k-- > 0;) {
    const Factor& f = far.layout.factors[k];
    if (f.extent == 1) continue;
    std::vector<Stepping> dims;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t stride = std::abs(far.strides[d]);
      if (stride < unit || stride >= unit * f.extent) continue;
      if (stride % unit) {
        int64_t every = 1;
        for (const Factor& other : far.layout.factors) every *= other.parts();
        return std::min(most, every);
      }
      if (shape[d] > 1) {
        dims.push_back({stride / unit, shape[d],
                        Backwards(near[d], far.strides[d], shape[d])});
      }
    }
    std::sort(dims.begin(), dims.end(), std::greater());
    const int64_t start = FloorMod(FloorDiv(lowest, unit), f.extent);
    beyond += start;
    for (const Stepping& d : dims) beyond += (d.extent - 1) * d.step;
    beyond /= f.extent;
    const bool over = beyond > 0;
    tiles *= SpannedParts(f, start, carry, dims, over, wraps);
    const int64_t span = carry + Reach(dims);
    carry = over ? span / f.extent + 1 : 0;
    wraps =
        over &&
        (wraps || std::any_of(dims.begin(), dims.end(),
                              [](const Stepping& d) { return d.held.wraps; }));
    unit *= f.extent;
  }
  return std::min(most, tiles);
}

}  // namespace ipu::moves
