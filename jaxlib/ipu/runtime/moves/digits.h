// Where the peer of a tile's elements changes (contiguous_destinations.h).

#ifndef JAXLIB_IPU_RUNTIME_MOVES_DIGITS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_DIGITS_H_

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/moves/far_dims.h"
#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// A factor that the far end cuts into blocks. The peer changes where the
// factor's digit passes from one block to the next.
struct Digit {
  int64_t unit;    // Elements per step of the digit.
  int64_t extent;  // Number of steps after which the digit wraps.
  int64_t block;   // Steps from one block to the next.
  int64_t start;   // The digit of the first element.
  bool wraps;      // Whether any element lies beyond the extent.

  // By how much an index along a dimension moves the digit.
  int64_t Step(const FarDim& dim) const {
    if (std::abs(dim.far) < unit) return 0;
    const int64_t step = FloorDiv(dim.far, unit);
    return step % extent ? step : 0;
  }

  // How far a box reaches from its first digit.
  int64_t Span(std::span<const FarDim> box) const;

  // Bounds of the digits at which a box may begin: modulo `grid`, no begin
  // exceeds `last` (which may itself exceed `grid`).
  struct Begin {
    int64_t grid, last;
  };

  // The dimensions of `rest` are divided into those of long steps, which are
  // multiples of the grid, and those of short steps, whose reach adds up to
  // `last`; each bound divides them at another place.
  std::vector<Begin> Begins(std::span<const FarDim> box,
                            std::span<const FarDim> rest) const;

  // Whether a box lies within one block, for all indices of `rest`.
  bool Has(std::span<const FarDim> box, std::span<const FarDim> rest) const;

  // The maximum number of block changes between the boxes along `dim`.
  int64_t Changes(const FarDims& box, const FarDim& dim,
                  std::span<const FarDim> rest) const;

  // Whether the block only changes at multiples of `grain` along `dim`.
  bool Even(const FarDim& dim, std::span<const FarDim> rest,
            int64_t grain) const;
};

using Digits = std::vector<Digit>;

// The factors that the far end cuts. Digits count steps of the factor if no
// index carries into it from inner factors, otherwise elements.
Digits DigitsOf(const std::vector<Factor>& factors, int64_t start,
                const FarDims& dims);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_DIGITS_H_
