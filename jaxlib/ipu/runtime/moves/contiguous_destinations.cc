#include "jaxlib/ipu/runtime/moves/contiguous_destinations.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ipu::moves {
namespace {

// A dimension of a tile's elements.
struct Dim {
  int64_t extent;
  int64_t far;  // The stride at the far end, in elements.
  // By how many elements of the far end the dimensions inside the last index
  // reach less far than those inside the others.
  int64_t shorter = 0;
};

using Dims = std::vector<Dim>;

int64_t Size(std::span<const Dim> dims) {
  int64_t size = 1;
  for (const Dim& d : dims) size *= d.extent;
  return size;
}

template <typename... Parts>
Dims Join(const Parts&... parts) {
  Dims all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

Dims From(const Dims& dims, size_t first) {
  return {dims.begin() + first, dims.end()};
}

// A dimension with its stride at the near end.
struct Stepped {
  int64_t stride;
  Dim dim;
};

// An interval of indices that begins or ends within a row of the dimensions
// that it spans.
struct Tail {
  Dims dims;       // Innermost first.
  int64_t length;  // Maximum number of indices in the interval.
  int64_t grid;    // The interval begins at a multiple of this number.
};

// A tile's elements, in its storage order.
struct Memory {
  Dims held;  // Dimensions that the tile holds entirely, innermost first.
  // The interval that it holds of the dimensions outside of these, if it is not
  // simply another dimension.
  std::optional<Tail> tail;
  int64_t times = 1;  // How often the tile holds all of that.
  Dims rest;  // Dimensions along which tiles, or the repetitions, differ.
};

// A factor that the far end cuts into blocks. The peer changes where the
// factor's digit passes from one block to the next.
struct Digit {
  int64_t unit;    // Elements per step of the digit.
  int64_t extent;  // Number of steps after which the digit wraps.
  int64_t block;   // Steps from one block to the next.
  int64_t start;   // The digit of the first element.
  bool wraps;      // Whether any element lies beyond the extent.

  // By how much an index along a dimension moves the digit.
  int64_t Step(const Dim& dim) const {
    if (std::abs(dim.far) < unit) return 0;
    const int64_t step = FloorDiv(dim.far, unit);
    return step % extent ? step : 0;
  }

  // How far a box reaches from its first digit.
  int64_t Span(std::span<const Dim> box) const {
    int64_t span = 0;
    for (const Dim& d : box) span += (d.extent - 1) * std::abs(Step(d));
    return span;
  }

  // Bounds of the digits at which a box may begin: modulo `grid`, no begin
  // exceeds `last` (which may itself exceed `grid`).
  struct Begin {
    int64_t grid, last;
  };

  // The dimensions of `rest` are divided into those of long steps, which are
  // multiples of the grid, and those of short steps, whose reach adds up to
  // `last`; each bound divides them at another place.
  std::vector<Begin> Begins(std::span<const Dim> box,
                            std::span<const Dim> rest) const {
    struct Way {
      int64_t step;
      bool back;
      int64_t reach;
      auto operator<=>(const Way&) const = default;
    };
    int64_t low = start, spread = 0;
    for (const Dim& d : box) {
      low += std::min<int64_t>((d.extent - 1) * Step(d), 0);
    }
    std::vector<Way> ways;
    for (const Dim& d : rest) {
      const int64_t step = Step(d);
      const int64_t reach = (d.extent - 1) * std::abs(step) - d.shorter / unit;
      ways.push_back({std::abs(step), step < 0, step ? reach : 0});
    }
    std::sort(ways.begin(), ways.end());
    std::vector<Begin> found;
    for (size_t i = 0; i <= ways.size(); ++i) {
      if (i > 0) {
        low -= ways[i - 1].back ? ways[i - 1].reach : 0;
        spread += ways[i - 1].reach;
      }
      int64_t grid = block;
      for (size_t j = i; j < ways.size(); ++j) {
        grid = std::gcd(grid, ways[j].step);
      }
      if (wraps) grid = std::gcd(grid, extent);
      found.push_back({grid, FloorMod(low, grid) + spread});
    }
    return found;
  }

  // Whether a box lies within one block, for all indices of `rest`.
  bool Has(std::span<const Dim> box, std::span<const Dim> rest) const {
    const int64_t size = 1 + Span(box);
    const std::vector<Begin> begins = Begins(box, rest);
    return std::any_of(begins.begin(), begins.end(), [&](const Begin& begin) {
      return begin.last + size <= begin.grid;
    });
  }

  // The maximum number of block changes between the boxes along `dim`.
  int64_t Changes(const Dims& box, const Dim& dim,
                  std::span<const Dim> rest) const {
    const int64_t span = Span({&dim, 1});
    if (!span) return 0;
    int64_t least = dim.extent - 1;
    if (wraps && extent % block) {
      return std::min(least, span / block + span / extent + 2);
    }
    Dims row = box;
    row.push_back(dim);
    for (const auto [grid, last] : Begins(row, rest)) {
      if (last < grid) {
        least = std::min(least, (block - grid + last + span) / block);
      }
    }
    return least;
  }

  // Whether the block only changes at multiples of `grain` along `dim`.
  bool Even(const Dim& dim, std::span<const Dim> rest, int64_t grain) const {
    const int64_t step = Step(dim);
    if (!step) return true;
    const int64_t begin = step > 0 ? start : start + 1;
    return std::abs(step) == 1 && begin % grain == 0 && block % grain == 0 &&
           extent % grain == 0 &&
           std::all_of(rest.begin(), rest.end(),
                       [&](const Dim& d) { return Step(d) % grain == 0; });
  }
};

using Digits = std::vector<Digit>;

// Whether different indices may lead to the same element although no stride is
// 0: strides do not nest.
bool Overlaps(const Ints& shape, const Ints& strides) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && strides[d]) {
      steps.emplace_back(std::abs(strides[d]), shape[d]);
    }
  }
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [stride, extent] : steps) {
    if (stride <= reach) return true;
    reach += (extent - 1) * stride;
  }
  return false;
}

// The factors of a mapping, joined where possible.
std::vector<Factor> Joined(const Layout& layout) {
  std::vector<Factor> found;
  for (const Factor& f : layout.factors) {
    if (f.extent == 1) continue;
    if (f.parts() > 1) {
      found.push_back(f);
    } else if (!found.empty()) {
      found.back().extent *= f.extent;
      found.back().block *= f.extent;
    } else {
      found.push_back({f.extent, f.extent, 0});
    }
  }
  return found;
}

int64_t NumElements(const std::vector<Factor>& factors) {
  int64_t count = 1;
  for (const Factor& f : factors) count *= f.extent;
  return count;
}

// Joins adjacent dimensions that are one longer dimension at both ends.
std::vector<Stepped> JoinDims(const std::vector<Stepped>& stepped) {
  std::vector<Stepped> found;
  for (const auto& [stride, dim] : stepped) {
    if (!found.empty()) {
      auto& [inner, last] = found.back();
      if (stride == inner * last.extent && dim.far == last.far * last.extent) {
        last.extent *= dim.extent;
        continue;
      }
    }
    found.push_back({stride, dim});
  }
  return found;
}

// Splits each dimension that carries from one factor of the far end into the
// next, if its extent can be divided there.
std::vector<Stepped> SplitDims(std::vector<Stepped> stepped,
                               const std::vector<Factor>& factors) {
  int64_t unit = 1;
  for (size_t i = factors.size(); i-- > 1;) {
    unit *= factors[i].extent;
    std::vector<Stepped> found;
    for (auto [stride, dim] : stepped) {
      const int64_t size = unit / std::gcd(dim.far, unit);
      if (std::abs(dim.far) < unit && unit == size * std::abs(dim.far) &&
          dim.extent % size == 0) {
        found.push_back({stride, {size, dim.far}});
        stride *= size;
        dim = {dim.extent / size, dim.far * size};
      }
      found.push_back({stride, dim});
    }
    stepped = std::move(found);
  }
  return stepped;
}

// The factors that the far end cuts. Digits count steps of the factor if no
// index carries into it from inner factors, otherwise elements.
Digits DigitsOf(const std::vector<Factor>& factors, int64_t start,
                const Dims& dims) {
  Digits found;
  int64_t lowest = start, unit = NumElements(factors);
  for (const Dim& d : dims) {
    lowest += std::min<int64_t>((d.extent - 1) * d.far, 0);
  }
  for (const Factor& f : factors) {
    unit /= f.extent;
    if (f.parts() <= 1) continue;
    int64_t below = FloorMod(lowest, unit);
    bool clean = true;
    for (const Dim& d : dims) {
      if (std::abs(d.far) < unit) {
        below += (d.extent - 1) * std::abs(d.far);
      } else {
        clean &= d.far % unit == 0;
      }
    }
    clean &= below < unit;
    const int64_t by = clean ? unit : 1;
    Digit digit = {by, f.extent * unit / by, f.block * unit / by, 0, false};
    int64_t reach = 0, back = 0;
    for (const Dim& d : dims) {
      const int64_t step = (d.extent - 1) * digit.Step(d);
      reach += std::abs(step);
      back -= std::min<int64_t>(step, 0);
    }
    const int64_t low = FloorMod(FloorDiv(lowest, by), digit.extent);
    digit.start = low + back;
    digit.wraps = low + reach >= digit.extent;
    found.push_back(digit);
  }
  return found;
}

// Removes the dimensions from the end of `todo` that step through a factor
// element by element; returns them, and whether they cover the factor exactly.
std::pair<Dims, bool> Take(std::vector<Stepped>& todo, int64_t root,
                           int64_t extent) {
  Dims group;
  int64_t left = extent;
  while (left > 1 && !todo.empty() && todo.back().stride == root) {
    const auto [stride, dim] = todo.back();
    todo.pop_back();
    const int64_t inner = std::gcd(dim.extent, left);
    if (inner != std::min(dim.extent, left)) {
      group.push_back(dim);
      return {group, false};
    }
    if (inner < dim.extent) {
      todo.push_back({stride * inner, {dim.extent / inner, dim.far * inner}});
    }
    group.push_back({inner, dim.far});
    root *= inner;
    left /= inner;
  }
  return {group, left == 1};
}

// The dimensions of a factor: those that a tile holds entirely, those along
// which tiles differ, and the interval of the others, if the factor's blocks
// are not made of whole rows of them.
struct Cut {
  Dims held, rest;
  std::optional<Tail> tail;
};

Cut CutDims(const Dims& group, const Factor& f) {
  Cut cut;
  int64_t size = std::min(f.block, f.extent);
  for (size_t i = 0; i < group.size(); ++i) {
    const Dim& d = group[i];
    const int64_t inner = std::min(size, d.extent);
    const bool last = i + 1 == group.size();
    if (size % inner || (d.extent % inner && !last)) {
      cut.tail = Tail{From(group, i), size, size};
      return cut;
    }
    if (inner > 1) cut.held.push_back({inner, d.far});
    if (inner < d.extent) {
      const int64_t missing = FloorMod(-d.extent, inner);
      cut.rest.push_back(
          {CeilDiv(d.extent, inner), d.far * inner, std::abs(d.far) * missing});
    }
    size /= inner;
  }
  return cut;
}

void Append(Dims& dims, const Dims& more) {
  dims.insert(dims.end(), more.begin(), more.end());
}

// Splits a tile's elements into dimensions. `first` is the first accessed
// element, `stepped` are the dimensions, smallest stride first, and `elements`
// is the maximum number of elements on a tile.
Memory MemoryOf(const std::vector<Factor>& factors, int64_t first,
                const std::vector<Stepped>& stepped, int64_t elements) {
  std::vector<Stepped> todo(stepped.rbegin(), stepped.rend());
  Memory memory;
  int64_t root = 1, count = 1;
  for (size_t i = factors.size(); i-- > 0;) {
    const Factor& f = factors[i];
    const auto [group, whole] = Take(todo, root, f.extent);
    const int64_t row = root * f.extent;
    // Where the dimensions outside of the factor lead.
    int64_t strides = 0;
    for (const Stepped& s : todo) strides = std::gcd(strides, s.stride);
    if (!whole || first % row || strides % row) {
      // The remaining dimensions leave gaps, or are not aligned with the
      // factor: count the intervals of those that are dense.
      const int64_t size = Size(group);
      for (const Stepped& s : todo) memory.rest.push_back(s.dim);
      if (memory.tail) {
        memory.times = CeilDiv(elements, count * memory.tail->length);
        Append(memory.rest, group);
        return memory;
      }
      const int64_t length = std::min(size, f.block);
      memory.times = CeilDiv(elements, count * length);
      const int64_t begins = std::gcd(row, strides);
      if (FloorMod(first, begins) + root * size > begins) {
        memory.times *= 2;  // an interval that wraps
      }
      const int64_t grid =
          std::gcd(std::gcd(first, strides), std::gcd(root * f.block, row));
      if (!group.empty()) {
        memory.tail = Tail{group, length, grid % root ? 1 : grid / root};
      }
      return memory;
    }
    Cut cut = CutDims(group, f);
    root = row;
    Append(memory.rest, cut.rest);
    if (!memory.tail) {
      Append(memory.held, cut.held);
      count *= Size(cut.held);
      memory.tail = std::move(cut.tail);
    } else {
      Append(memory.rest, cut.held);
      if (cut.tail) Append(memory.rest, cut.tail->dims);
      memory.times *= f.block;
    }
  }
  return memory;
}

struct Boxes {
  int64_t count;  // Intervals of the dimensions that a tile holds entirely.
  size_t inside;  // How many of these dimensions form a box.
  bool even;      // Whether intervals consist of whole words.
};

Boxes CountBoxes(const Dims& dims, const Digits& digits, const Dims& rest,
                 int64_t grain) {
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim& d = dims[i];
    const Dims box(dims.begin(), dims.begin() + i);
    const Dims row(dims.begin(), dims.begin() + i + 1);
    const Dims outer = Join(From(dims, i + 1), rest);
    if (d.far && std::all_of(digits.begin(), digits.end(), [&](const Digit& x) {
          return x.Has(row, outer);
        })) {
      continue;
    }
    int64_t count = d.extent;
    if (d.far) {
      int64_t changes = 1;
      for (const Digit& x : digits) changes += x.Changes(box, d, outer);
      count = std::min(count, changes);
    }
    const int64_t left = grain / std::gcd(Size(box), grain);
    bool even = left == 1;
    if (!even && box.empty() &&
        (i + 1 == dims.size() || d.extent % left == 0)) {
      even = std::all_of(digits.begin(), digits.end(), [&](const Digit& x) {
        return x.Even(d, outer, left);
      });
    }
    return {count * Size(From(dims, i + 1)), i, even};
  }
  return {1, dims.size(), Size(dims) % grain == 0};
}

// The number of intervals of an interval of boxes; and a number of boxes at
// whose multiples all intervals begin and end.
std::pair<int64_t, int64_t> CountIntervals(const Tail& tail, const Dims& box,
                                           const Digits& digits,
                                           const Dims& rest) {
  size_t inside = 0;
  int64_t unit = 1;
  while (unit * tail.dims[inside].extent < tail.length) {
    unit *= tail.dims[inside++].extent;
  }
  const Dims inner(tail.dims.begin(), tail.dims.begin() + inside);
  const Dim dim = tail.dims[inside];
  const Dims outer = From(tail.dims, inside + 1);
  const Dims beyond = Join(outer, rest);
  const int64_t grid = std::gcd(tail.grid, unit);
  int64_t touched = (unit - grid + tail.length - 1) / unit + 1;
  if (outer.empty()) touched = std::min(touched, dim.extent);
  const Dims boxes = Join(box, inner);
  const Boxes each = CountBoxes(boxes, digits, Join(Dims{dim}, beyond), 1);
  if (each.inside < boxes.size()) {
    // As many of the inner dimensions as are in the box.
    const size_t alike = std::max(each.inside, box.size());
    unit = Size({boxes.begin() + box.size(), boxes.begin() + alike});
    return {touched * each.count, unit};
  }
  if (!dim.far) return {touched, unit};
  // The interval may begin at any multiple of the grid, and wrap into the next
  // dimension.
  int64_t step = tail.grid % unit ? 1 : tail.grid / unit;
  if (!outer.empty()) step = std::gcd(step, dim.extent);
  const Dims starts = Join(Dims{{dim.extent, dim.far * step}}, beyond);
  const Dim along = {std::min(touched, dim.extent), dim.far};
  int64_t changes = 1;
  for (const Digit& x : digits) changes += x.Changes(boxes, along, starts);
  const int64_t turns = outer.empty() ? 1 : 2;
  return {std::min(touched, turns * changes), unit};
}

// The number of intervals of a tile's memory, and whether all of them consist
// of whole words.
ContiguousDestinations Count(const Memory& memory, const Digits& digits,
                             const Dims& many, int64_t grain) {
  const Dims beyond = Join(memory.rest, many);
  const Dims more = memory.tail ? Join(memory.tail->dims, beyond) : beyond;
  const Boxes boxes = CountBoxes(memory.held, digits, more, grain);
  int64_t count = boxes.count;
  bool even = boxes.even;
  if (memory.tail) {
    const Tail& tail = *memory.tail;
    if (boxes.inside < memory.held.size()) {
      count *= tail.length;
    } else {
      const auto [intervals, unit] =
          CountIntervals(tail, memory.held, digits, beyond);
      const int64_t size = Size(memory.held);
      count = intervals;
      even = size * unit % grain == 0 && size * tail.grid % grain == 0;
    }
  }
  return {count * memory.times, even};
}

}  // namespace

ContiguousDestinations CountContiguousDestinations(const MoveEnd& near,
                                                   const MoveEnd& far,
                                                   const Ints& shape,
                                                   int64_t elements,
                                                   int64_t grain) {
  const ContiguousDestinations single = {elements, grain == 1};
  if (Overlaps(shape, near.strides) || Overlaps(shape, far.strides)) {
    return single;
  }
  // Reverse dimensions of negative strides, so that the near end is accessed
  // forwards.
  int64_t first = near.offset, start = far.offset;
  std::vector<Stepped> stepped;
  Dims many;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t extent = shape[d];
    if (extent == 1) continue;
    int64_t stride = near.strides[d], step = far.strides[d];
    if (stride < 0) {
      first += (extent - 1) * stride;
      start += (extent - 1) * step;
      stride = -stride;
      step = -step;
    }
    if (stride) {
      stepped.push_back({stride, {extent, step}});
    } else {
      many.push_back({extent, step});
    }
  }
  std::sort(
      stepped.begin(), stepped.end(),
      [](const Stepped& a, const Stepped& b) { return a.stride < b.stride; });
  const std::vector<Factor> near_factors = Joined(near.layout);
  const std::vector<Factor> far_factors = Joined(far.layout);
  stepped = SplitDims(JoinDims(stepped), far_factors);
  Dims dims;
  for (const Stepped& s : stepped) dims.push_back(s.dim);
  const Digits digits = DigitsOf(far_factors, start, Join(dims, many));
  for (const Digit& x : digits) {
    // An element that has many places at the far end must have the same
    // distance from block boundaries in all of them.
    if (!many.empty() && x.wraps) return single;
    for (const Dim& d : many) {
      if (x.Step(d) % x.block) return single;
    }
  }
  const Memory memory = MemoryOf(near_factors, first, stepped, elements);
  ContiguousDestinations found = Count(memory, digits, many, grain);
  found.even |= found.count == 1 && Size(dims) == NumElements(near_factors);
  return found;
}

}  // namespace ipu::moves
