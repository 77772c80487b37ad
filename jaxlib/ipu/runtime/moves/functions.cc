#include "jaxlib/ipu/runtime/moves/functions.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/moves/contiguous_destinations.h"
#include "jaxlib/ipu/runtime/moves/fullest_ends.h"
#include "jaxlib/ipu/runtime/moves/layout.h"
#include "jaxlib/ipu/runtime/moves/moved_elements.h"
#include "jaxlib/ipu/runtime/moves/segments.h"

namespace ipu::moves {
namespace {

// Reads the integers of a move.
class Reader {
 public:
  Reader(const int64_t* next, size_t count) : next_(next), left_(count) {}

  int64_t Next() {
    if (!left_) {
      failed_ = true;
      return 0;
    }
    --left_;
    return *next_++;
  }

  // A number of further elements of at least `size` integers each.
  size_t Count(size_t size) {
    const int64_t count = Next();
    failed_ |= count < 0 || count > static_cast<int64_t>(left_ / size);
    return failed_ ? 0 : count;
  }

  Ints List(size_t count) {
    Ints list(count);
    for (int64_t& x : list) x = Next();
    return list;
  }

  Layout Mapping() {
    Layout layout;
    const size_t factors = Count(3), replicas = Count(2);
    layout.base = Next();
    for (size_t i = 0; i < factors; ++i) {
      const int64_t extent = Next(), block = Next();
      failed_ |= extent < 1 || block < 1;
      layout.factors.push_back({extent, block, Next()});
    }
    for (size_t i = 0; i < replicas; ++i) {
      const int64_t count = Next();
      layout.replicas.push_back({count, Next()});
    }
    return layout;
  }

  MoveEnd End(size_t dims) {
    MoveEnd end = {.layout = Mapping(), .offset = Next(), .strides = {}};
    end.strides = List(dims);
    return end;
  }

  bool done() const { return !failed_ && !left_; }

 private:
  const int64_t* next_;
  size_t left_;
  bool failed_ = false;
};

struct Move {
  Ints shape;
  MoveEnd source, destination;
};

std::optional<Move> Read(const int64_t* integers, size_t count) {
  Reader reader(integers, count);
  Move move;
  const size_t dims = reader.Count(1);
  move.shape = reader.List(dims);
  move.source = reader.End(dims);
  move.destination = reader.End(dims);
  if (!reader.done()) return std::nullopt;
  return move;
}

}  // namespace
}  // namespace ipu::moves

__attribute__((visibility("default"))) int64_t ipu_elements(
    const int64_t* mapping, size_t count, size_t tiles, int64_t* elements) try {
  ipu::moves::Reader reader(mapping, count);
  const ipu::moves::Layout layout = reader.Mapping();
  if (!reader.done()) return -1;
  const ipu::moves::Ints found = layout.Elements(tiles);
  std::copy(found.begin(), found.end(), elements);
  return 0;
} catch (const std::exception&) {
  return -2;
}

__attribute__((visibility("default"))) int64_t
ipu_moved_bytes(const int64_t* move, size_t count, int once, int64_t item_bytes,
                size_t tiles, int64_t* bytes, int64_t* ends) try {
  const auto read = ipu::moves::Read(move, count);
  if (!read || item_bytes < 1 || !tiles) return -1;
  const auto& [shape, source, destination] = *read;
  const auto lines = ipu::moves::CountMovedElements(source, destination, shape,
                                                    once != 0, tiles, bytes);
  const auto found = ipu::moves::FindFullestEnds(
      source, destination, shape, item_bytes, tiles, lines, bytes);
  static_assert(sizeof(found) == 13 * sizeof(int64_t));
  std::memcpy(ends, &found, sizeof(found));
  for (size_t i = 0; i < ipu::moves::kMoveFigures * tiles; ++i) {
    bytes[i] *= item_bytes;
  }
  return 0;
} catch (const std::exception&) {
  return -2;
}

__attribute__((visibility("default"))) int64_t
ipu_segments(const int64_t* move, size_t count, int64_t item_bytes,
             int64_t* figures) try {
  auto read = ipu::moves::Read(move, count);
  if (!read || item_bytes < 1) return -1;
  const auto ends = ipu::moves::CountSegments(
      std::move(read->source), std::move(read->destination),
      std::move(read->shape), item_bytes);
  for (const ipu::moves::SegmentCounts& end : ends) {
    for (const int64_t figure :
         {end.segments, end.peers, end.length, end.per_block, end.block,
          end.whole, end.elements, end.even}) {
      *figures++ = figure;
    }
  }
  return 0;
} catch (const std::exception&) {
  return -2;
}

__attribute__((visibility("default"))) int64_t
ipu_contiguous_destinations(const int64_t* move, size_t count, int64_t elements,
                            int64_t grain, int64_t* figures) try {
  const auto read = ipu::moves::Read(move, count);
  if (!read || elements < 1 || grain < 1) return -1;
  const auto found = ipu::moves::CountContiguousDestinations(
      read->source, read->destination, read->shape, elements, grain);
  figures[0] = found.count;
  figures[1] = found.even;
  return 0;
} catch (const std::exception&) {
  return -2;
}
