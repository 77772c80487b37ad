#include "jaxlib/ipu/runtime/moves/layout.h"

#include <algorithm>
#include <tuple>

namespace ipu::moves {

int64_t NumElements(const std::vector<Factor>& factors) {
  int64_t count = 1;
  for (const Factor& f : factors) count *= f.extent;
  return count;
}

int64_t Layout::NumReplicas() const {
  int64_t count = 1;
  for (const Replica& r : replicas) count *= r.count;
  return count;
}

Coordinates Layout::Locate(size_t tiles, const std::vector<Factor>& cuts,
                           bool first_replica) const {
  Coordinates found;
  found.parts.assign(cuts.size(), {});
  // (stride, count, number of the factor or -1).
  std::vector<std::tuple<int64_t, int64_t, int64_t>> steps;
  for (size_t i = 0; i < cuts.size(); ++i) {
    steps.emplace_back(cuts[i].stride, cuts[i].parts(), i);
  }
  if (!first_replica) {
    for (const Replica& r : replicas) steps.emplace_back(r.stride, r.count, -1);
  }
  std::vector<int32_t> left(tiles), replica;
  for (size_t t = 0; t < tiles; ++t) {
    left[t] = std::max<int32_t>(t - base, 0);
  }
  // Strides nest, but there may be gaps: start with the longest one.
  std::sort(steps.rbegin(), steps.rend());
  for (const auto& [stride, count, i] : steps) {
    if (count <= 1 || !stride) continue;
    std::vector<int32_t>& parts = i < 0 ? replica : found.parts[i];
    parts.resize(tiles);
    // Exact for 31 bits, and several at a time, unlike a division.
    const double inverse = 1.0 / stride;
    const int32_t step = stride, last = count - 1;
    for (size_t t = 0; t < tiles; ++t) {
      const auto part = static_cast<int32_t>((left[t] + 0.5) * inverse);
      parts[t] = std::min(part, last);
      left[t] -= parts[t] * step;
    }
  }
  for (std::vector<int32_t>& parts : found.parts) parts.resize(tiles);
  found.active.resize(tiles);
  for (size_t t = 0; t < tiles; ++t) {
    found.active[t] = left[t] == 0 && static_cast<int64_t>(t) >= base;
  }
  return found;
}

Ints Layout::Elements(size_t tiles, bool first_replica) const {
  const Coordinates at = Locate(tiles, factors, first_replica);
  Ints count(at.active.begin(), at.active.end());
  for (size_t i = 0; i < factors.size(); ++i) {
    const Factor& f = factors[i];
    for (size_t t = 0; t < tiles; ++t) {
      const int64_t beyond = f.extent - at.parts[i][t] * f.block;
      count[t] *= std::clamp<int64_t>(beyond, 0, f.block);
    }
  }
  return count;
}

std::optional<std::pair<Factor, Factor>> SplitFactor(const Factor& f,
                                                     int64_t inner) {
  const int64_t outer = f.extent / inner;
  const Factor whole = {inner, inner, 0};
  if (f.parts() <= 1) return {{{outer, outer, 0}, whole}};
  if (f.block % inner == 0) {
    return {{{outer, f.block / inner, f.stride}, whole}};
  }
  if (inner % f.block == 0) {
    const int64_t step = f.stride * (inner / f.block);
    return {{{outer, 1, step}, {inner, f.block, f.stride}}};
  }
  return std::nullopt;
}

}  // namespace ipu::moves
