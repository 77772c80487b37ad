#include "jaxlib/ipu/runtime/moves/affine_access.h"

#include <algorithm>
#include <cstdlib>

namespace ipu::moves {

void AffineAccess::Reset() {
  factors_.clear();
  for (const Factor& f : end_.layout.factors) {
    if (f.extent != 1) factors_.push_back(f);
  }
}

bool AffineAccess::Join(size_t k) {
  if (k == 0 || factors_[k].parts() > 1) return false;
  const Factor inner = factors_[k];
  Factor& outer = factors_[k - 1];
  outer.extent *= inner.extent;
  outer.block *= inner.extent;
  factors_.erase(factors_.begin() + k);
  return true;
}

Fit AffineAccess::FitTo(const Ints& shape, const Ints& strides) {
  while (const std::optional<Failure> failure = Try(shape, strides)) {
    if (!Join(failure->factor)) return {false, failure->split};
  }
  return {true, std::nullopt};
}

std::optional<AffineAccess::Failure> AffineAccess::Try(const Ints& shape,
                                                       const Ints& strides) {
  const size_t count = factors_.size();
  // The elements by which a step of each factor's digit moves.
  Ints units(count);
  starts_.resize(count);
  int64_t unit = 1;
  for (size_t k = count; k-- > 0;) {
    units[k] = unit;
    starts_[k] = FloorMod(FloorDiv(end_.offset, unit), factors_[k].extent);
    unit *= factors_[k].extent;
  }
  digits_.assign(shape.size(), {});
  Ints low = starts_, high = starts_;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t stride = strides[d];
    if (shape[d] == 1 || stride == 0) continue;
    size_t k = 0;
    while (k < count && units[k] > std::abs(stride)) ++k;
    if (k == count) return Failure{0, std::nullopt};  // no such element
    if (stride % units[k]) return Failure{k + 1, std::nullopt};
    const int64_t step = stride / units[k];
    digits_[d] = {static_cast<int>(k), step};
    (step < 0 ? low : high)[k] += step * (shape[d] - 1);
  }
  for (size_t k = 0; k < count; ++k) {
    if (low[k] < 0 || high[k] >= factors_[k].extent) {
      return Failure{k, SplitOf(k, shape)};
    }
  }
  return std::nullopt;
}

std::optional<DimSplit> AffineAccess::SplitOf(size_t k,
                                              const Ints& shape) const {
  const int64_t extent = factors_[k].extent;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (digits_[d].factor != static_cast<int>(k)) continue;
    const int64_t step = std::abs(digits_[d].step);
    if (extent % step) continue;
    const int64_t inner = extent / step;
    if (shape[d] > inner && inner > 1 && shape[d] % inner == 0) {
      return DimSplit{d, inner};
    }
  }
  return std::nullopt;
}

int AffineAccess::Cut(size_t d) const {
  const int k = digits_[d].factor;
  return k >= 0 && factors_[k].parts() > 1 ? k : -1;
}

Dims AffineAccess::DimsOf(size_t k) const {
  Dims dims;
  for (size_t d = 0; d < digits_.size(); ++d) {
    if (digits_[d].factor == static_cast<int>(k)) dims.push_back(d);
  }
  return dims;
}

std::vector<Step> AffineAccess::StepsOf(const Dims& dims,
                                        const Ints& shape) const {
  std::vector<Step> steps;
  for (const size_t d : dims) {
    steps.emplace_back(shape[d], std::abs(digits_[d].step));
  }
  std::stable_sort(
      steps.begin(), steps.end(),
      [](const Step& a, const Step& b) { return a.second > b.second; });
  return steps;
}

Touched AffineAccess::TouchedBy(size_t tiles) const {
  Coordinates at = end_.layout.Locate(tiles, factors_);
  for (size_t k = 0; k < factors_.size(); ++k) {
    if (factors_[k].parts() <= 1 || !DimsOf(k).empty()) continue;
    const int64_t part = starts_[k] / factors_[k].block;
    for (size_t t = 0; t < tiles; ++t) at.active[t] &= at.parts[k][t] == part;
  }
  Touched found = {std::move(at.parts), at.active, std::move(at.active)};
  if (!end_.layout.replicas.empty()) {
    const Coordinates alone = end_.layout.Locate(tiles, factors_, true);
    for (size_t t = 0; t < tiles; ++t) found.first[t] &= alone.active[t];
  }
  return found;
}

Ints AffineAccess::Edges(size_t k) const {
  const Factor& f = factors_[k];
  Ints edges(f.parts() + 1);
  for (size_t p = 0; p < edges.size(); ++p) {
    edges[p] = std::min<int64_t>(p * f.block, f.extent);
  }
  return edges;
}

int64_t AffineAccess::Begin(size_t k, const Dims& dims,
                            const Ints& shape) const {
  int64_t begin = starts_[k];
  for (const size_t d : dims) {
    begin += std::min<int64_t>(digits_[d].step * (shape[d] - 1), 0);
  }
  return begin;
}

bool Nested(const std::vector<Step>& dims) {
  int64_t reach = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    const auto& [extent, step] = dims[i];
    if (step <= reach) return false;
    reach += (extent - 1) * step;
  }
  return true;
}

int64_t Rank(int64_t limit, const std::vector<Step>& dims) {
  if (limit <= 0) return 0;
  int64_t inner = 1, count = 0;
  for (const Step& d : dims) inner *= d.first;
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    const auto& [extent, step] = dims[i];
    inner /= extent;
    const int64_t index = (limit - 1) / step;
    count += std::min(index, extent) * inner;
    if (index >= extent) return count;
    limit -= step * index;
  }
  const auto& [extent, step] = dims.back();
  return count + std::clamp<int64_t>(CeilDiv(limit, step), 0, extent);
}

}  // namespace ipu::moves
