#include "jaxlib/ipu/runtime/moves/segments.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/moves/peers.h"

namespace ipu::moves {
namespace {

constexpr int64_t kWord = 4;

// The blocks of a mapping, in elements.
struct ContiguousBlocks {
  int64_t block;  // elements that are contiguous in the memory of a tile
  // Elements after which blocks begin anew; the last block of a row may be
  // short.
  int64_t row;
};

// One end of a move, and the strides that lead from line to line.
struct BlockedEnd {
  const MoveEnd& end;
  int64_t block, row;
  Ints line_strides;
  Ints stride_differences;  // the other end's such strides, minus these
};

template <typename... Lists>
Ints Join(const Lists&... lists) {
  Ints all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

// Whether any of `starts` is no multiple of `spacing`.
bool Misaligned(const Ints& starts, int64_t spacing) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](int64_t x) { return x % spacing != 0; });
}

// The greatest common divisor of `steps` and `grid`.
int64_t Grid(const Ints& steps, int64_t grid = 0) {
  for (const int64_t step : steps) grid = std::gcd(grid, step);
  return grid;
}

// Whether intervals of `size` elements that begin at `start` plus any multiples
// of `steps` never cross a multiple of one of the steps.
bool StaysBetween(int64_t size, int64_t start, const Ints& steps) {
  const int64_t grid = Grid(steps);
  return FloorMod(start, grid) + size <= grid;
}

// Joins adjacent dimensions that are one dimension of a longer extent at both
// ends, each along one factor. Leaves out dimensions of extent 1.
void JoinDimensions(Ints& shape, MoveEnd& one, MoveEnd& other) {
  const auto continues = [](const MoveEnd& end, int64_t outer, int64_t inner,
                            int64_t extent) {
    return outer == extent * inner &&
           (!inner || FactorAt(end.layout, std::abs(outer)).second ==
                          FactorAt(end.layout, std::abs(inner)).second);
  };
  size_t count = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t extent = shape[d];
    const int64_t s = one.strides[d], t = other.strides[d];
    if (extent == 1) continue;
    if (count && continues(one, one.strides[count - 1], s, extent) &&
        continues(other, other.strides[count - 1], t, extent)) {
      extent *= shape[--count];
    }
    shape[count] = extent;
    one.strides[count] = s;
    other.strides[count++] = t;
  }
  shape.resize(count);
  one.strides.resize(count);
  other.strides.resize(count);
}

ContiguousBlocks BlocksOf(const Layout& layout) {
  int64_t unit = 1;
  for (size_t k = layout.factors.size(); k-- > 0;) {
    const Factor& f = layout.factors[k];
    if (f.parts() > 1) return {f.block * unit, f.extent * unit};
    unit *= f.extent;
  }
  return {unit, unit};
}

// The blocks of two mappings. Nothing follows the end of a tensor, so a block
// or row that ends there is rounded up to whole words and whole blocks.
std::array<ContiguousBlocks, 2> PaddedBlocks(const Layout& one,
                                             const Layout& other,
                                             int64_t grain) {
  std::array blocks = {BlocksOf(one), BlocksOf(other)};
  const std::array sizes = {NumElements(one.factors),
                            NumElements(other.factors)};
  int64_t unit = std::max<int64_t>(grain, 1);
  for (int i : {0, 1}) {
    if (blocks[i].block < sizes[i]) unit = std::lcm(unit, blocks[i].block);
  }
  for (int i : {0, 1}) {
    for (int64_t* x : {&blocks[i].block, &blocks[i].row}) {
      if (*x >= sizes[i]) *x = CeilDiv(*x, unit) * unit;
    }
  }
  return blocks;
}

// The maximum number of the far end's blocks that an interval spans.
//
// Intervals of `size` elements begin at `start` plus any multiples of `steps`.
// `alike` says that rows of blocks begin and end together at both ends, so no
// interval crosses the end of the far end's rows.
int64_t SpannedBlocks(int64_t size, int64_t start, const Ints& steps,
                      const BlockedEnd& far, bool alike = false) {
  int64_t row_ends = 0, grid = Grid(steps, far.block);
  if (!alike && far.row % far.block) {
    grid = std::gcd(grid, far.row);
    if (!StaysBetween(size, start, Join(steps, Ints{far.row}))) {
      row_ends = FloorDiv(size - 1, far.row) + 1;
      grid = 1;
    }
  }
  // The fewest elements of a block that an interval may begin with.
  const int64_t first = grid - FloorMod(start, grid);
  return 1 - std::min<int64_t>(FloorDiv(first - size, far.block), 0) + row_ends;
}

// The maximum number of segments in the part of a line that is contiguous on a
// tile of the near end; and their length, 1 if it may differ.
std::pair<int64_t, int64_t> SegmentsPerLine(int64_t line,
                                            const BlockedEnd& near,
                                            const BlockedEnd& far) {
  const int64_t own = near.end.offset, block = near.block, row = near.row;
  const int64_t delta = far.end.offset - own;
  bool even;
  int64_t size, start;
  Ints steps, repeats;
  if (line <= block) {
    even = StaysBetween(line, own, Join(near.line_strides, Ints{block, row}));
    size = line;
    start = far.end.offset;
    repeats = far.line_strides;
    steps = Join(Ints{line}, repeats);
  } else {
    const Ints begins = Join(Ints{line, own}, near.line_strides);
    even = row % block == 0 && !Misaligned(begins, block);
    size = block;
    start = delta;
    steps = repeats = Join(Ints{block, row}, near.stride_differences);
    const bool inside = !Misaligned(begins, row);
    const bool alone =
        !Misaligned(near.line_strides, row) && StaysBetween(line, own, {row});
    if (!(even || inside || alone)) {
      return {2 * SpannedBlocks(size, 0, {1}, far), 1};
    }
  }
  const Ints limits = {far.block, far.row};
  const Ints shift = Join(near.stride_differences, Ints{row}, limits);
  // Whether rows of blocks begin and end together at both ends.
  const bool alike =
      near.row == far.row &&
      !Misaligned(Join(Ints{delta}, near.stride_differences), near.row);
  const bool rows_alike = line > block && alike;
  const bool whole = even && (line <= block || row % block == 0);
  int64_t cuts, length;
  if (StaysBetween(size, start, Join(repeats, limits)) ||
      StaysBetween(block, delta, Join(Ints{block}, shift)) ||
      StaysBetween(row, delta, shift) ||
      (rows_alike && far.block % near.block == 0)) {
    cuts = 1;
    length = size;
  } else if (far.row % far.block == 0 &&
             !Misaligned(Join(Ints{size, start}, steps), far.block)) {
    cuts = size / far.block;
    length = far.block;
  } else {
    if (rows_alike) {
      start = 0;
      repeats = {block};
    }
    cuts = SpannedBlocks(size, start, repeats, far, rows_alike);
    length = 1;
  }
  return {(whole || line > block ? 1 : 2) * cuts, whole ? length : 1};
}

// The number of places at the far end to which an element of the near end is
// copied, if the blocks of the far end may cut these places differently.
int64_t DifferingImages(const Ints& shape, const MoveEnd& near,
                        const BlockedEnd& far) {
  const int64_t spacing = far.row % far.block ? far.row : far.block;
  int64_t images = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!near.strides[d] && far.end.strides[d] % spacing) images *= shape[d];
  }
  return images;
}

}  // namespace

std::array<SegmentCounts, 2> CountSegments(MoveEnd one, MoveEnd other,
                                           Ints shape, int64_t item_bytes) {
  if (std::count(shape.begin(), shape.end(), 0)) return {};
  JoinDimensions(shape, one, other);
  // The elements that are contiguous in both tensors are called a line; other
  // dimensions lead from line to line.
  std::vector<std::tuple<int64_t, int64_t, int64_t>> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.emplace_back(one.strides[d], other.strides[d], shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t line = 1;
  Ints near_strides, far_strides;
  for (const auto& [s, t, n] : dims) {
    if (s == line && t == line && near_strides.empty()) {
      line *= n;
    } else {
      near_strides.push_back(s);
      far_strides.push_back(t);
    }
  }
  const int64_t grain = kWord / item_bytes;
  const auto blocks = PaddedBlocks(one.layout, other.layout, grain);
  if (line == NumElements(one.layout.factors) &&
      line == NumElements(other.layout.factors)) {
    // All of both tensors, in whole words.
    line = std::max(blocks[0].row, blocks[1].row);
  }
  Ints spacings = {one.offset,    other.offset,    blocks[0].block,
                   blocks[0].row, blocks[1].block, blocks[1].row};
  if (!near_strides.empty()) {
    spacings = Join(spacings, Ints{line}, near_strides, far_strides);
  }
  const bool whole = grain < 2 || !Misaligned(spacings, grain);
  Ints there(near_strides.size()), back(near_strides.size());
  for (size_t i = 0; i < there.size(); ++i) {
    there[i] = far_strides[i] - near_strides[i];
    back[i] = -there[i];
  }
  const BlockedEnd ends[] = {
      {one, blocks[0].block, blocks[0].row, near_strides, there},
      {other, blocks[1].block, blocks[1].row, far_strides, back}};
  const auto count = [&](const BlockedEnd& near, const BlockedEnd& far) {
    std::vector<HeldIndices> tile;
    int64_t elements = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      tile.push_back(FindHeldIndices(near.end, far.end, shape, d));
      elements *= tile.back().indices;
    }
    auto [per_block, length] = SegmentsPerLine(line, near, far);
    const int64_t images = DifferingImages(shape, near.end, far);
    if (images > 1) {
      per_block *= images;
      length = 1;
    }
    int64_t segments = CeilDiv(elements, std::min(line, near.block));
    segments = std::min(segments * per_block, elements);
    int64_t peers = 1;
    if (segments > 1) {
      peers = std::min(CountPeers(tile, far.end, shape), segments);
    }
    const bool even = grain < 2 || !Misaligned({near.block, near.row}, grain);
    return SegmentCounts{segments,   peers, length,   per_block,
                         near.block, whole, elements, even};
  };
  return {count(ends[0], ends[1]), count(ends[1], ends[0])};
}

}  // namespace ipu::moves
