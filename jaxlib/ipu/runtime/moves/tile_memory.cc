#include "jaxlib/ipu/runtime/moves/tile_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace ipu::moves {
namespace {

// Removes the dimensions from the end of `todo` that step through a factor
// element by element; returns them, and whether they cover the factor exactly.
std::pair<FarDims, bool> Take(std::vector<Stepped>& todo, int64_t root,
                              int64_t extent) {
  FarDims group;
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
  FarDims held, rest;
  std::optional<TileTail> tail;
};

Cut CutDims(const FarDims& group, const Factor& f) {
  Cut cut;
  int64_t size = std::min(f.block, f.extent);
  for (size_t i = 0; i < group.size(); ++i) {
    const FarDim& d = group[i];
    const int64_t inner = std::min(size, d.extent);
    const bool last = i + 1 == group.size();
    if (size % inner || (d.extent % inner && !last)) {
      cut.tail = TileTail{From(group, i), size, size};
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

void Append(FarDims& dims, const FarDims& more) {
  dims.insert(dims.end(), more.begin(), more.end());
}

}  // namespace

TileMemory MemoryOf(const std::vector<Factor>& factors, int64_t first,
                    const std::vector<Stepped>& stepped, int64_t elements) {
  std::vector<Stepped> todo(stepped.rbegin(), stepped.rend());
  TileMemory memory;
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
        memory.tail = TileTail{group, length, grid % root ? 1 : grid / root};
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

}  // namespace ipu::moves
