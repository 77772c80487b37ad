#include "jaxlib/ipu/runtime/moves/contiguous_destinations.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/moves/digits.h"
#include "jaxlib/ipu/runtime/moves/far_dims.h"
#include "jaxlib/ipu/runtime/moves/tile_memory.h"

namespace ipu::moves {
namespace {

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

struct Boxes {
  int64_t count;  // Intervals of the dimensions that a tile holds entirely.
  size_t inside;  // How many of these dimensions form a box.
  bool even;      // Whether intervals consist of whole words.
};

Boxes CountBoxes(const FarDims& dims, const Digits& digits, const FarDims& rest,
                 int64_t grain) {
  for (size_t i = 0; i < dims.size(); ++i) {
    const FarDim& d = dims[i];
    const FarDims box(dims.begin(), dims.begin() + i);
    const FarDims row(dims.begin(), dims.begin() + i + 1);
    const FarDims outer = Join(From(dims, i + 1), rest);
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
std::pair<int64_t, int64_t> CountIntervals(const TileTail& tail,
                                           const FarDims& box,
                                           const Digits& digits,
                                           const FarDims& rest) {
  size_t inside = 0;
  int64_t unit = 1;
  while (unit * tail.dims[inside].extent < tail.length) {
    unit *= tail.dims[inside++].extent;
  }
  const FarDims inner(tail.dims.begin(), tail.dims.begin() + inside);
  const FarDim dim = tail.dims[inside];
  const FarDims outer = From(tail.dims, inside + 1);
  const FarDims beyond = Join(outer, rest);
  const int64_t grid = std::gcd(tail.grid, unit);
  int64_t touched = (unit - grid + tail.length - 1) / unit + 1;
  if (outer.empty()) touched = std::min(touched, dim.extent);
  const FarDims boxes = Join(box, inner);
  const Boxes each = CountBoxes(boxes, digits, Join(FarDims{dim}, beyond), 1);
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
  const FarDims starts = Join(FarDims{{dim.extent, dim.far * step}}, beyond);
  const FarDim along = {std::min(touched, dim.extent), dim.far};
  int64_t changes = 1;
  for (const Digit& x : digits) changes += x.Changes(boxes, along, starts);
  const int64_t turns = outer.empty() ? 1 : 2;
  return {std::min(touched, turns * changes), unit};
}

// The number of intervals of a tile's memory, and whether all of them consist
// of whole words.
ContiguousDestinations Count(const TileMemory& memory, const Digits& digits,
                             const FarDims& many, int64_t grain) {
  const FarDims beyond = Join(memory.rest, many);
  const FarDims more = memory.tail ? Join(memory.tail->dims, beyond) : beyond;
  const Boxes boxes = CountBoxes(memory.held, digits, more, grain);
  int64_t count = boxes.count;
  bool even = boxes.even;
  if (memory.tail) {
    const TileTail& tail = *memory.tail;
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
  FarDims many;
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
  FarDims dims;
  for (const Stepped& s : stepped) dims.push_back(s.dim);
  const Digits digits = DigitsOf(far_factors, start, Join(dims, many));
  for (const Digit& x : digits) {
    // An element that has many places at the far end must have the same
    // distance from block boundaries in all of them.
    if (!many.empty() && x.wraps) return single;
    for (const FarDim& d : many) {
      if (x.Step(d) % x.block) return single;
    }
  }
  const TileMemory memory = MemoryOf(near_factors, first, stepped, elements);
  ContiguousDestinations found = Count(memory, digits, many, grain);
  found.even |= found.count == 1 && Size(dims) == NumElements(near_factors);
  return found;
}

}  // namespace ipu::moves
