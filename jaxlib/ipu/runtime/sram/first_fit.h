// First fit: gives each piece of memory the lowest address that is free for the
// piece's whole lifetime.
//
// Pieces are placed in the order of their weights, highest first, which takes
// quadratic time. If there are many pieces, only a limited number is placed in
// this way; the others are placed around these in order of birth, in time that
// is linear in their number.

#ifndef JAXLIB_IPU_RUNTIME_SRAM_FIRST_FIT_H_
#define JAXLIB_IPU_RUNTIME_SRAM_FIRST_FIT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ipu::sram {

// The first and the last time of a closed interval.
struct Interval {
  int64_t begin, end;
};

// Intervals, ascending; at least one.
using Lifetime = std::span<const Interval>;

// `step`, the alignment, is a divisor of `size`. Pieces of higher weight are
// placed first.
struct Piece {
  Lifetime life;
  int64_t size, step, weight;
};

// A piece that has its addresses, [low, high): at least one.
struct Placed {
  Lifetime life;
  int64_t low, high;
};

// The address of each piece, at least `base`. The first `count` are placed in
// the order of their weights, the others in order of birth: these take their
// addresses from birth to death, gaps in their lifetimes included.
std::vector<int64_t> FirstFit(std::span<const Piece> pieces,
                              std::vector<Placed> placed, int64_t base,
                              size_t count);

}  // namespace ipu::sram

#endif  // JAXLIB_IPU_RUNTIME_SRAM_FIRST_FIT_H_
