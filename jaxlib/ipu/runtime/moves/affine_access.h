// Affine accesses of tensors, in the digits that tile mappings cut.
//
// The row-major index of an element splits into digits, one per factor of the
// tensor's mapping, and a tile holds an interval of every digit. If an access
// never carries from one digit into the next, each digit depends only on the
// dimensions of the iteration space that step along its factor, so the factors
// can be counted one by one.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_AFFINE_ACCESS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_AFFINE_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

using Dims = std::vector<size_t>;

// The part of an accessed tensor that each tile holds.
struct Touched {
  // For each factor, the part that each tile holds.
  std::vector<std::vector<int32_t>> parts;
  // Whether the tile holds any accessed element.
  std::vector<uint8_t> active;
  // Whether it is also in the first of the mapping's replicas.
  std::vector<uint8_t> first;
};

// A dimension to split, and its inner extent.
struct DimSplit {
  size_t dim;
  int64_t inner;
};

// Whether an access has digits, or what would help.
struct Fit {
  bool fits;
  std::optional<DimSplit> split;  // to be made before it fits
};

// (extent, step) of a dimension.
using Step = std::pair<int64_t, int64_t>;

class AffineAccess {
 public:
  explicit AffineAccess(const MoveEnd& end) : end_(end) { Reset(); }

  const MoveEnd& end() const { return end_; }
  // Those of the mapping, some of them joined or split.
  const std::vector<Factor>& factors() const { return factors_; }
  void set_factors(std::vector<Factor> factors) {
    factors_ = std::move(factors);
  }
  // The digit of factor k at index 0 of the iteration space.
  int64_t start(size_t k) const { return starts_[k]; }

  // Restores the mapping's own factors.
  void Reset();

  // Finds the digits along which each dimension steps, and joins factors as far
  // as this needs.
  Fit FitTo(const Ints& shape, const Ints& strides);

  // The factor along which dimension d steps; -1 if the access is broadcast
  // along d.
  int FactorOf(size_t d) const { return digits_[d].factor; }
  // The step of dimension d in its digit; 0 if broadcast.
  int64_t StepOf(size_t d) const { return digits_[d].step; }
  // The factor that cuts dimension d into parts; -1 if none does.
  int Cut(size_t d) const;
  // The dimensions that step along factor k.
  Dims DimsOf(size_t k) const;
  // The same if they are among `dims`, as (extent, |step|), longest step first.
  std::vector<Step> StepsOf(const Dims& dims, const Ints& shape) const;

  // The parts that tiles hold. If no dimension steps along a factor, all
  // accessed elements have that factor's start digit, and only the tiles that
  // hold it are active.
  Touched TouchedBy(size_t tiles) const;

  // The digits at which the parts of factor k begin, then its extent.
  Ints Edges(size_t k) const;

  // The smallest digit of factor k that these dimensions reach.
  int64_t Begin(size_t k, const Dims& dims, const Ints& shape) const;

 private:
  struct Digit {
    int factor = -1;
    int64_t step = 0;
  };
  struct Failure {
    size_t factor;                  // to be joined with the next outer one
    std::optional<DimSplit> split;  // if it cannot be joined
  };

  // Like FitTo, but joins nothing.
  std::optional<Failure> Try(const Ints& shape, const Ints& strides);
  // Joins factor k with the next outer one if it is not cut; returns whether it
  // did.
  bool Join(size_t k);
  // The split after which a dimension no longer carries out of factor k.
  std::optional<DimSplit> SplitOf(size_t k, const Ints& shape) const;

  const MoveEnd& end_;
  std::vector<Factor> factors_;
  Ints starts_;
  std::vector<Digit> digits_;
};

// Whether dimensions, outermost first, enumerate distinct numbers in ascending
// order.
bool Nested(const std::vector<Step>& dims);

// How many of the numbers that nested dimensions enumerate from 0 are below a
// limit.
int64_t Rank(int64_t limit, const std::vector<Step>& dims);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_AFFINE_ACCESS_H_
