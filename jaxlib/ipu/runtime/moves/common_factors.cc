#include "jaxlib/ipu/runtime/moves/common_factors.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ipu::moves {
namespace {

void Split(Space& space, const DimSplit& split) {
  const auto& [d, inner] = split;
  space.shape[d] /= inner;
  space.shape.insert(space.shape.begin() + d + 1, inner);
  for (Ints& strides : space.strides) {
    const int64_t stride = strides[d];
    strides[d] *= inner;
    strides.insert(strides.begin() + d + 1, stride);
  }
}

bool FitBoth(Accesses& accesses, Space& space) {
  for (int side = 0; side < 2;) {
    const Fit found = accesses[side].FitTo(space.shape, space.strides[side]);
    if (found.fits) {
      ++side;
      continue;
    }
    if (!found.split) return false;
    Split(space, *found.split);
    // Factors that had to be joined may fit the smaller dimensions unjoined.
    for (AffineAccess& access : accesses) access.Reset();
    side = 0;
  }
  return true;
}

// Replaces factor k by two if the access then has digits without joining
// factors again, and returns whether it did. This cannot go on for ever: there
// are never more factors than dimensions.
bool Replace(AffineAccess& access, size_t k,
             const std::pair<Factor, Factor>& halves, const Ints& shape,
             const Ints& strides) {
  const std::vector<Factor> before = access.factors();
  std::vector<Factor> after = before;
  after[k] = halves.second;
  after.insert(after.begin() + k, halves.first);
  access.set_factors(std::move(after));
  if (access.FitTo(shape, strides).fits &&
      access.factors().size() > before.size()) {
    return true;
  }
  access.set_factors(before);
  access.FitTo(shape, strides);
  return false;
}

// Splits a factor that cuts several dimensions, if the other end cuts them by
// several factors or in another order; returns whether it did.
bool Untie(Accesses& accesses, const Space& space) {
  for (int side = 0; side < 2; ++side) {
    AffineAccess& access = accesses[side];
    const AffineAccess& other = accesses[1 - side];
    for (size_t k = 0; k < access.factors().size(); ++k) {
      const Factor factor = access.factors()[k];
      if (factor.parts() <= 1) continue;
      Dims dims = access.DimsOf(k);
      std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
        return std::abs(access.StepOf(a)) > std::abs(access.StepOf(b));
      });
      // The dimensions that the other end cuts come first, by one factor.
      bool alike = true, ended = false;
      int cut = -1;
      for (const size_t d : dims) {
        const int its = other.Cut(d);
        if (its < 0) {
          ended = true;
          continue;
        }
        alike &= !ended && (cut < 0 || cut == its);
        cut = its;
      }
      if (alike) continue;
      for (size_t i = 0; i + 1 < dims.size(); ++i) {
        const int64_t inner = std::abs(access.StepOf(dims[i]));
        if (inner <= 1 || factor.extent % inner) continue;
        const auto halves = SplitFactor(factor, inner);
        if (halves &&
            Replace(access, k, *halves, space.shape, space.strides[side])) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

bool Unify(Accesses& accesses, Space& space) {
  if (!FitBoth(accesses, space)) return false;
  while (Untie(accesses, space)) {
  }
  return true;
}

}  // namespace ipu::moves
