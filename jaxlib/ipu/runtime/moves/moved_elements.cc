#include "jaxlib/ipu/runtime/moves/moved_elements.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/moves/affine_access.h"
#include "jaxlib/ipu/runtime/moves/common_factors.h"
#include "jaxlib/ipu/runtime/moves/per_tile.h"

namespace ipu::moves {
namespace {

// Numbers of elements along some dimensions, for each tile.
struct Figures {
  PerTile wanted = 1;  // elements of the destination on the tile
  PerTile held = 1;    // elements of the source on the tile
  PerTile both = 1;    // elements that the tile both holds and needs
  PerTile alone = 1;   // of these, those that no other tile needs
};

// The numbers of elements along two groups of dimensions together.
Figures operator*(const Figures& a, const Figures& b) {
  return {a.wanted * b.wanted, a.held * b.held, a.both * b.both,
          a.alone * b.alone};
}

bool Contains(const Dims& dims, size_t d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

// table[part] for each tile.
PerTile Lookup(const Ints& table, const std::vector<int32_t>& parts,
               size_t next = 0) {
  Ints values(parts.size());
  for (size_t t = 0; t < parts.size(); ++t) values[t] = table[parts[t] + next];
  return PerTile(std::move(values));
}

PerTile Min(const PerTile& a, const PerTile& b) {
  return Each([](int64_t x, int64_t y) { return std::min(x, y); }, a, b);
}

PerTile Max(const PerTile& a, const PerTile& b) {
  return Each([](int64_t x, int64_t y) { return std::max(x, y); }, a, b);
}

// The lengths of the intervals [begin, end).
PerTile Length(const PerTile& begin, const PerTile& end) {
  return Each([](int64_t x, int64_t y) { return std::max<int64_t>(y - x, 0); },
              begin, end);
}

class Counter {
 public:
  Counter(const MoveEnd& source, const MoveEnd& destination, const Ints& shape,
          bool once, size_t tiles);

  MovedLines Count(int64_t* figures);

 private:
  using Interval = std::pair<PerTile, PerTile>;

  const AffineAccess& source() const { return accesses_[0]; }
  const AffineAccess& destination() const { return accesses_[1]; }

  // The number of elements along a group's dimensions that are contiguous on
  // both ends; 0 if none of the dimensions is.
  int64_t Contiguous(Dims group) const;
  // Groups of dimensions that have to be counted together: those that step
  // along one factor, if it is cut or their steps do not nest.
  std::vector<Dims> Groups() const;
  // The number of distinct elements that each tile at an end holds along some
  // dimensions, or an upper bound.
  PerTile OneSide(int side, const Dims& dims) const;
  // The numbers of elements along a group of dimensions.
  Figures FiguresOf(const Dims& dims) const;
  // The numbers of elements where tiles of both ends hold intervals of the same
  // order of the dimensions; none if there is no such order.
  std::optional<Figures> Intervals(const Dims& dims, const PerTile& wanted,
                                   const PerTile& held) const;
  // The numbers of elements of overlapping windows along one factor: a tile
  // needs everything from the beginning of its first window to the end of its
  // last. None if the dimensions are no such windows.
  std::optional<Figures> Windows(const Dims& dims) const;
  // The interval that each tile holds, if `order` is the order of the
  // dimensions; it begins with `mine`, which one factor cuts.
  Interval Ranks(int side, const Dims& mine, const Dims& order) const;
  // For each edge between parts of factor k, how many indices of the nested
  // dimensions `mine` lie before it.
  Ints Edges(int side, size_t k, const Dims& mine) const;
  // Everything that a tile holds moves.
  void WriteBounds(int64_t* figures) const;

  int64_t Extent(const Dims& dims) const {
    int64_t size = 1;
    for (const size_t d : dims) size *= space_.shape[d];
    return size;
  }

  const bool once_;
  const size_t tiles_;
  Accesses accesses_;
  Space space_;
  bool fits_;
  std::array<Touched, 2> touched_;
};

Counter::Counter(const MoveEnd& source, const MoveEnd& destination,
                 const Ints& shape, bool once, size_t tiles)
    : once_(once),
      tiles_(tiles),
      accesses_{AffineAccess(source), AffineAccess(destination)} {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    space_.shape.push_back(shape[d]);
    space_.strides[0].push_back(source.strides[d]);
    space_.strides[1].push_back(destination.strides[d]);
  }
  fits_ = Unify(accesses_, space_);
}

void Counter::WriteBounds(int64_t* figures) const {
  const int64_t size = std::accumulate(space_.shape.begin(), space_.shape.end(),
                                       int64_t{1}, std::multiplies());
  const Ints wanted = destination().end().layout.Elements(tiles_);
  const Ints held = source().end().layout.Elements(tiles_, true);
  for (size_t t = 0; t < tiles_; ++t) {
    figures[kReceived * tiles_ + t] = std::min(wanted[t], size);
    figures[kSent * tiles_ + t] = std::min(held[t], size);
    figures[kKept * tiles_ + t] = 0;
  }
}

MovedLines Counter::Count(int64_t* figures) {
  if (!fits_) {
    WriteBounds(figures);
    return {};
  }
  for (int side : {0, 1}) touched_[side] = accesses_[side].TouchedBy(tiles_);
  Figures outer, inner;
  MovedLines lines;
  for (const Dims& group : Groups()) {
    Figures found = FiguresOf(group);
    if (const int64_t contiguous = Contiguous(group)) {
      inner = std::move(found);
      lines.length = contiguous;
    } else {
      outer = outer * found;
    }
  }
  // Elements that no other tile needs are not sent. If the destination has
  // replicas, there are no such elements.
  const bool single = destination().end().layout.NumReplicas() == 1;
  const auto row = [&](int figure) { return figures + figure * tiles_; };
  int64_t *received = row(kReceived), *sent = row(kSent), *kept = row(kKept);
  for (size_t t = 0; t < tiles_; ++t) {
    const int64_t active = touched_[1].active[t], sends = touched_[0].first[t];
    const int64_t stays = active & touched_[0].active[t];
    const int64_t only = active & single;
    kept[t] = stays * outer.both[t] * inner.both[t];
    received[t] = active * outer.wanted[t] * inner.wanted[t] - kept[t];
    sent[t] = sends * (outer.held[t] * inner.held[t] -
                       only * outer.alone[t] * inner.alone[t]);
  }
  if (!lines.length) return lines;
  lines.arriving = {inner.wanted, inner.both, outer.wanted, outer.both, {}, {}};
  lines.leaving = {inner.held, inner.alone, outer.held, outer.alone, {}, {}};
  lines.arriving.any_kept.resize(tiles_);
  lines.leaving.any_kept.resize(tiles_);
  for (size_t t = 0; t < tiles_; ++t) {
    const uint8_t active = touched_[1].active[t];
    lines.arriving.any_kept[t] = active & touched_[0].active[t];
    lines.leaving.any_kept[t] = active & touched_[0].first[t] & single;
  }
  lines.arriving.any = std::move(touched_[1].active);
  lines.leaving.any = std::move(touched_[0].first);
  return lines;
}

int64_t Counter::Contiguous(Dims group) const {
  const auto& [near, far] = space_.strides;
  std::stable_sort(group.begin(), group.end(),
                   [&](size_t a, size_t b) { return near[a] < near[b]; });
  int64_t length = 1;
  for (const size_t d : group) {
    if (near[d] == length && far[d] == length) length *= space_.shape[d];
  }
  return length > 1 ? length : 0;
}

std::vector<Dims> Counter::Groups() const {
  std::vector<Dims> groups;
  for (size_t d = 0; d < space_.shape.size(); ++d) groups.push_back({d});
  for (const AffineAccess& access : accesses_) {
    for (size_t k = 0; k < access.factors().size(); ++k) {
      const Dims mine = access.DimsOf(k);
      if (mine.size() < 2 || (access.factors()[k].parts() <= 1 &&
                              Nested(access.StepsOf(mine, space_.shape)))) {
        continue;
      }
      Dims tied;
      std::erase_if(groups, [&](const Dims& group) {
        const bool met = std::any_of(group.begin(), group.end(), [&](size_t d) {
          return Contains(mine, d);
        });
        if (met) tied.insert(tied.end(), group.begin(), group.end());
        return met;
      });
      std::sort(tied.begin(), tied.end());
      groups.push_back(std::move(tied));
    }
  }
  return groups;
}

PerTile Counter::OneSide(int side, const Dims& dims) const {
  const AffineAccess& access = accesses_[side];
  PerTile count = 1;
  for (size_t k = 0; k < access.factors().size(); ++k) {
    Dims mine = access.DimsOf(k);
    std::erase_if(mine, [&](size_t d) { return !Contains(dims, d); });
    if (mine.empty()) continue;
    const std::vector<Step> steps = access.StepsOf(mine, space_.shape);
    const int64_t size = Extent(mine);
    if (access.factors()[k].parts() > 1) {
      Ints sizes = Nested(steps) ? Edges(side, k, mine) : access.Edges(k);
      for (size_t p = 0; p + 1 < sizes.size(); ++p) {
        sizes[p] = std::min(sizes[p + 1] - sizes[p], size);
      }
      count = count * Lookup(sizes, touched_[side].parts[k]);
    } else if (Nested(steps)) {
      count = count * size;
    } else {
      int64_t unit = 0, reach = 0;
      for (const auto& [extent, step] : steps) {
        unit = std::gcd(unit, step);
        reach += (extent - 1) * step;
      }
      count = count * std::min(size, reach / unit + 1);
    }
  }
  return count;
}

Figures Counter::FiguresOf(const Dims& dims) const {
  Dims moving;
  for (const size_t d : dims) {
    if (source().StepOf(d) != 0) moving.push_back(d);
  }
  PerTile held = OneSide(0, moving), wanted = OneSide(1, dims);
  if (moving.empty()) {
    // The source is broadcast along all of them: one element, many places.
    const bool cut = std::any_of(dims.begin(), dims.end(), [&](size_t d) {
      return destination().Cut(d) >= 0;
    });
    if (once_) wanted = Min(wanted, 1);
    return {wanted, held, wanted, int64_t{!cut}};
  }
  std::optional<Figures> joint;
  if (moving.size() == dims.size()) {
    bool nests = true;
    for (size_t k = 0; k < source().factors().size(); ++k) {
      Dims mine = source().DimsOf(k);
      std::erase_if(mine, [&](size_t d) { return !Contains(dims, d); });
      nests &= Nested(source().StepsOf(mine, space_.shape));
    }
    if (nests) {
      joint = Intervals(dims, wanted, held);
    } else if (once_) {
      joint = Windows(dims);
    }
  }
  return joint ? *std::move(joint) : Figures{wanted, held, 0, 0};
}

std::optional<Figures> Counter::Intervals(const Dims& dims,
                                          const PerTile& wanted,
                                          const PerTile& held) const {
  std::array<Dims, 2> cut;
  for (int side : {0, 1}) {
    const AffineAccess& access = accesses_[side];
    std::set<int> factors;
    for (const size_t d : dims) {
      if (access.Cut(d) < 0) continue;
      cut[side].push_back(d);
      factors.insert(access.Cut(d));
    }
    if (factors.size() > 1) return std::nullopt;
    std::stable_sort(
        cut[side].begin(), cut[side].end(), [&](size_t a, size_t b) {
          return std::abs(access.StepOf(a)) > std::abs(access.StepOf(b));
        });
  }
  const auto& [ours, theirs] = cut;
  Dims order = theirs.size() > ours.size() ? theirs : ours;
  for (const Dims& mine : cut) {
    if (!std::equal(mine.begin(), mine.end(), order.begin())) {
      return std::nullopt;
    }
  }
  bool backwards = false;
  for (const size_t d : ours) {
    backwards |=
        Contains(theirs, d) && source().StepOf(d) * destination().StepOf(d) < 0;
  }
  for (const size_t d : dims) {
    if (!Contains(order, d)) order.push_back(d);
  }
  if (backwards && order.size() > 1) return std::nullopt;
  PerTile begin = 0, end = Extent(dims);
  for (int side : {0, 1}) {
    if (cut[side].empty()) continue;
    auto [low, high] = Ranks(side, cut[side], order);
    if (side == 1 && backwards) {
      const PerTile extent = space_.shape[dims[0]];
      const auto minus = [](int64_t x, int64_t y) { return x - y; };
      PerTile last = Each(minus, extent, low);
      low = Each(minus, extent, high);
      high = std::move(last);
    }
    begin = Max(begin, low);
    end = Min(end, high);
  }
  PerTile both = Length(begin, end);
  return Figures{wanted, held, both, both};
}

Counter::Interval Counter::Ranks(int side, const Dims& mine,
                                 const Dims& order) const {
  const size_t k = accesses_[side].Cut(mine[0]);
  Ints ranks = Edges(side, k, mine);
  const int64_t times = Extent(Dims(order.begin() + mine.size(), order.end()));
  for (int64_t& rank : ranks) rank *= times;
  const std::vector<int32_t>& parts = touched_[side].parts[k];
  return {Lookup(ranks, parts), Lookup(ranks, parts, 1)};
}

Ints Counter::Edges(int side, size_t k, const Dims& mine) const {
  const AffineAccess& access = accesses_[side];
  const std::vector<Step> steps = access.StepsOf(mine, space_.shape);
  const int64_t begin = access.Begin(k, mine, space_.shape);
  Ints ranks = access.Edges(k);
  for (int64_t& rank : ranks) rank = Rank(rank - begin, steps);
  return ranks;
}

std::optional<Figures> Counter::Windows(const Dims& dims) const {
  Dims cut;
  std::set<int> places;
  for (const size_t d : dims) {
    if (destination().Cut(d) >= 0) cut.push_back(d);
    if (source().FactorOf(d) >= 0) places.insert(source().FactorOf(d));
    if (source().StepOf(d) <= 0 || destination().StepOf(d) < 0) {
      return std::nullopt;
    }
  }
  if (dims.size() != 2 || cut.size() > 1 || places.size() != 1) {
    return std::nullopt;
  }
  const size_t place = cut.empty() ? dims[0] : cut[0];
  const size_t inside = place == dims[0] ? dims[1] : dims[0];
  const size_t k = *places.begin();
  const int64_t count = space_.shape[place];
  const int64_t unit =
      std::gcd(source().StepOf(place), source().StepOf(inside));
  const int64_t step = source().StepOf(place) / unit;
  const int64_t reach =
      (space_.shape[inside] - 1) * (source().StepOf(inside) / unit);
  PerTile first = 0, last = count;
  if (!cut.empty()) std::tie(first, last) = Ranks(1, cut, cut);
  PerTile begin = 0, end = (count - 1) * step + reach + 1;
  if (source().factors()[k].parts() > 1) {
    Ints edges = source().Edges(k);
    for (int64_t& edge : edges) {
      edge = -FloorDiv(source().start(k) - edge, unit);
    }
    const std::vector<int32_t>& parts = touched_[0].parts[k];
    begin = Max(Lookup(edges, parts), 0);
    end = Min(Lookup(edges, parts, 1), end);
  }
  // What the tile needs is [low, high); what no other tile needs of it is
  // [before, after).
  const PerTile low = first * step;
  const PerTile high =
      Each([&](int64_t x) { return (x - 1) * step + reach + 1; }, last);
  const PerTile before = Each(
      [&](int64_t x) { return x > 0 ? (x - 1) * step + reach + 1 : x * step; },
      first);
  const PerTile after = Each(
      [&](int64_t x) {
        return x < count ? x * step : (x - 1) * step + reach + 1;
      },
      last);
  const PerTile some =
      Each([](int64_t x, int64_t y) { return int64_t{y > x}; }, first, last);
  return Figures{
      some * Length(low, high), Length(begin, end),
      some * Length(Max(low, begin), Min(high, end)),
      some * Length(Max(Max(low, before), begin), Min(Min(high, after), end))};
}

}  // namespace

int64_t Lines::Longest() const {
  int64_t most = inner[0];
  for (size_t t = 1; t < inner.size(); ++t) most = std::max(most, inner[t]);
  return most;
}

int64_t Lines::Crossing(int64_t segments) const {
  int64_t most = 0;
  for (size_t t = 0; t < any.size(); ++t) {
    const int64_t some = std::min(inner[t] - inner_kept[t], segments);
    const int64_t all = any[t] * outer[t], kept = any_kept[t] * outer_kept[t];
    most = std::max(most, (all - kept) * segments + kept * some);
  }
  return most;
}

MovedLines CountMovedElements(const MoveEnd& source, const MoveEnd& destination,
                              const Ints& shape, bool once, size_t tiles,
                              int64_t* figures) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    std::fill_n(figures, kMoveFigures * tiles, 0);
    return {};
  }
  return Counter(source, destination, shape, once, tiles).Count(figures);
}

}  // namespace ipu::moves
