#include "jaxlib/ipu/runtime/moves/digits.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <numeric>

namespace ipu::moves {

int64_t Digit::Span(std::span<const FarDim> box) const {
  int64_t span = 0;
  for (const FarDim& d : box) span += (d.extent - 1) * std::abs(Step(d));
  return span;
}

std::vector<Digit::Begin> Digit::Begins(std::span<const FarDim> box,
                                        std::span<const FarDim> rest) const {
  struct Way {
    int64_t step;
    bool back;
    int64_t reach;
    auto operator<=>(const Way&) const = default;
  };
  int64_t low = start, spread = 0;
  for (const FarDim& d : box) {
    low += std::min<int64_t>((d.extent - 1) * Step(d), 0);
  }
  std::vector<Way> ways;
  for (const FarDim& d : rest) {
    const int64_t step = Step(d);
    const int64_t reach = (d.extent - 1) * std::abs(step) - d.shorter / unit;
    ways.push_back({std::abs(step), step < 0, step ? reach : 0});
  }
  std::sort(ways.begin(), ways.end());
  std::vector<Begin> found;
  for (size_t i = 0; i <= ways.size(); ++i) {
    if (i > 0) {
      low -= ways[i - 1].back ? ways[i - 1].reach : 0;
      spread += ways[i - 1].reach;
    }
    int64_t grid = block;
    for (size_t j = i; j < ways.size(); ++j) {
      grid = std::gcd(grid, ways[j].step);
    }
    if (wraps) grid = std::gcd(grid, extent);
    found.push_back({grid, FloorMod(low, grid) + spread});
  }
  return found;
}

bool Digit::Has(std::span<const FarDim> box,
                std::span<const FarDim> rest) const {
  const int64_t size = 1 + Span(box);
  const std::vector<Begin> begins = Begins(box, rest);
  return std::any_of(begins.begin(), begins.end(), [&](const Begin& begin) {
    return begin.last + size <= begin.grid;
  });
}

int64_t Digit::Changes(const FarDims& box, const FarDim& dim,
                       std::span<const FarDim> rest) const {
  const int64_t span = Span({&dim, 1});
  if (!span) return 0;
  int64_t least = dim.extent - 1;
  if (wraps && extent % block) {
    return std::min(least, span / block + span / extent + 2);
  }
  FarDims row = box;
  row.push_back(dim);
  for (const auto [grid, last] : Begins(row, rest)) {
    if (last < grid) {
      least = std::min(least, (block - grid + last + span) / block);
    }
  }
  return least;
}

bool Digit::Even(const FarDim& dim, std::span<const FarDim> rest,
                 int64_t grain) const {
  const int64_t step = Step(dim);
  if (!step) return true;
  const int64_t begin = step > 0 ? start : start + 1;
  return std::abs(step) == 1 && begin % grain == 0 && block % grain == 0 &&
         extent % grain == 0 &&
         std::all_of(rest.begin(), rest.end(),
                     [&](const FarDim& d) { return Step(d) % grain == 0; });
}

Digits DigitsOf(const std::vector<Factor>& factors, int64_t start,
                const FarDims& dims) {
  Digits found;
  int64_t lowest = start, unit = NumElements(factors);
  for (const FarDim& d : dims) {
    lowest += std::min<int64_t>((d.extent - 1) * d.far, 0);
  }
  for (const Factor& f : factors) {
    unit /= f.extent;
    if (f.parts() <= 1) continue;
    int64_t below = FloorMod(lowest, unit);
    bool clean = true;
    for (const FarDim& d : dims) {
      if (std::abs(d.far) < unit) {
        below += (d.extent - 1) * std::abs(d.far);
      } else {
        clean &= d.far % unit == 0;
      }
    }
    clean &= below < unit;
    const int64_t by = clean ? unit : 1;
    Digit digit = {by, f.extent * unit / by, f.block * unit / by, 0, false};
    int64_t reach = 0, back = 0;
    for (const FarDim& d : dims) {
      const int64_t step = (d.extent - 1) * digit.Step(d);
      reach += std::abs(step);
      back -= std::min<int64_t>(step, 0);
    }
    const int64_t low = FloorMod(FloorDiv(lowest, by), digit.extent);
    digit.start = low + back;
    digit.wraps = low + reach >= digit.extent;
    found.push_back(digit);
  }
  return found;
}

}  // namespace ipu::moves
