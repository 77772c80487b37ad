// Tile mappings, the C++ half of layout.py: factors of the row-major index, cut
// into blocks that tiles hold.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_LAYOUT_H_
#define JAXLIB_IPU_RUNTIME_MOVES_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ipu::moves {

using Ints = std::vector<int64_t>;

// Division that rounds towards minus infinity; the divisor is positive.
inline int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}
inline int64_t FloorMod(int64_t a, int64_t b) {
  return a % b + (a % b < 0 ? b : 0);
}
inline int64_t CeilDiv(int64_t a, int64_t b) { return -FloorDiv(-a, b); }

// `extent` indices in blocks of `block`; part p is `p * stride` tiles on.
struct Factor {
  int64_t extent, block, stride;

  int64_t parts() const { return CeilDiv(extent, block); }
};

// The number of indices.
int64_t NumElements(const std::vector<Factor>& factors);

// `count` copies, `stride` tiles apart.
struct Replica {
  int64_t count, stride;
};

// For each tile, its part of every factor, and whether it is in use.
struct Coordinates {
  std::vector<std::vector<int32_t>> parts;
  std::vector<uint8_t> active;
};

struct Layout {
  std::vector<Factor> factors;  // outermost first
  std::vector<Replica> replicas;
  int64_t base = 0;

  // How many tiles hold each element.
  int64_t NumReplicas() const;

  // The parts of tiles 0 to `tiles` - 1. They are of `cuts`, which are the
  // factors, or the same ones joined or split; without replicas if
  // `first_replica`.
  Coordinates Locate(size_t tiles, const std::vector<Factor>& cuts,
                     bool first_replica = false) const;

  // How many elements tiles 0 to `tiles` - 1 hold; of the first replica alone
  // if `first_replica`.
  Ints Elements(size_t tiles, bool first_replica = false) const;
};

// A factor as (outer, inner) ones, if no block straddles the boundary.
std::optional<std::pair<Factor, Factor>> SplitFactor(const Factor& factor,
                                                     int64_t inner);

// The source or the destination of a move. Element (i, j, ...) of the move's
// iteration space is element `offset + i*strides[0] + j*strides[1] + ...` of a
// tensor with this mapping.
struct MoveEnd {
  Layout layout;
  int64_t offset = 0;
  Ints strides;
};

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_LAYOUT_H_
