#include "jaxlib/ipu/runtime/moves/fullest_ends.h"

#include <algorithm>

#include "jaxlib/ipu/runtime/moves/segments.h"

namespace ipu::moves {
namespace {

// The segments of a tile that exchanges or keeps so many elements.
int64_t SegmentsOf(const SegmentCounts& counts, int64_t elements) {
  return std::max<int64_t>(
      std::min(counts.segments, CeilDiv(elements, counts.length)), 1);
}

// A tile that exchanges `moved` elements; `keeps` says that it also keeps
// elements, so is one of its own peers. `length` is that of the lines, from
// which the segments that stay on their tile can be told; 0 if there are none.
FullestEnd EndOf(const SegmentCounts& counts, int64_t moved, bool keeps,
                 int64_t length, const Lines& lines) {
  int64_t segments = SegmentsOf(counts, moved);
  if (length && segments > 1) {
    const int64_t row = std::min(length, counts.block);
    const int64_t each = CeilDiv(lines.Longest(), row) * counts.per_block;
    segments = std::max<int64_t>(std::min(segments, lines.Crossing(each)), 1);
  }
  const int64_t peers = std::max<int64_t>(counts.peers - keeps, 1);
  return {segments, std::min(peers, segments), moved, counts.elements};
}

}  // namespace

FullestEnds FindFullestEnds(const MoveEnd& source, const MoveEnd& destination,
                            const Ints& shape, int64_t item_bytes, size_t tiles,
                            const MovedLines& lines, const int64_t* figures) {
  const auto most = [&](int figure) {
    const int64_t* begin = figures + figure * tiles;
    return *std::max_element(begin, begin + tiles);
  };
  FullestEnds found;
  const int64_t received = most(kReceived);
  found.staying = most(kKept);
  if (found.staying) {
    const auto [one, other] =
        CountSegments(source, destination, shape, item_bytes);
    found.staying_segments = std::min(SegmentsOf(one, found.staying),
                                      SegmentsOf(other, found.staying));
  }
  if (!received) return found;
  const auto [to, of] = CountSegments(destination, source, shape, item_bytes);
  const int64_t* kept = figures + kKept * tiles;
  const bool keeps =
      std::all_of(kept, kept + tiles, [](int64_t n) { return n != 0; });
  found.sender = EndOf(of, most(kSent), keeps, lines.length, lines.leaving);
  found.receiver = EndOf(to, received, keeps, lines.length, lines.arriving);
  found.whole = to.whole;
  found.even = to.even;
  found.keeps = keeps;
  return found;
}

}  // namespace ipu::moves
