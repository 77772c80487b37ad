#include "jaxlib/ipu/runtime/plan/cuts.h"

#include <algorithm>
#include <limits>

namespace ipu::plan {
namespace {

// Blocks that fill the matrix unit: whole groups of output channels (rows or
// columns) and of input channels (terms). poplin's planner splits these
// dimensions only in such grains (ConvPlan.cpp, `inChanGrainSize`) [S].
constexpr int64_t kOutputs[] = {16, 32, 48, 64, 96, 128};
constexpr int64_t kInputs[] = {8, 16, 24, 32, 40, 48, 64, 80, 96, 128};
// Beyond this number of splits, those that cut terms are only considered if
// they use at least this share of the tiles. [G]
constexpr size_t kManySplits = 256;
constexpr double kLeastUsed = 0.7;

using Ints = std::vector<int64_t>;

void SortOnce(Ints& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// Numbers of parts to try for a dimension: divisors of the machine's number of
// tiles, powers of two, and a few more small numbers; ascending.
Ints Tried(int64_t tiles) {
  Ints found;
  for (int64_t n = 1; n * n <= tiles; ++n) {
    if (tiles % n == 0) found.insert(found.end(), {n, tiles / n});
  }
  for (int64_t n = 1; n <= tiles; n *= 2) found.push_back(n);
  for (const int64_t n : {3, 6, 12}) {
    if (n <= tiles) found.push_back(n);
  }
  SortOnce(found);
  return found;
}

// The numbers of parts of a dimension among `tried`, below `most`, and `most`,
// each that of equal blocks of some size, and those that result from the sizes
// `blocks`; ascending. Sizes are rounded up to multiples of `grain`.
Ints Parts(int64_t extent, int64_t most, const Ints& tried,
           std::span<const int64_t> blocks = {}, int64_t grain = 1) {
  most = std::clamp<int64_t>(most, 1, std::max<int64_t>(extent, 1));
  Ints found;
  const auto add = [&](int64_t size) {
    found.push_back(CeilDiv(extent, CeilDiv(size, grain) * grain));
  };
  for (const int64_t n : tried) {
    if (n < most) add(CeilDiv(extent, n));
  }
  add(CeilDiv(extent, most));
  for (const int64_t size : blocks) {
    if (size < extent) add(size);
  }
  SortOnce(found);
  return found;
}

void Distribute(int64_t parts, std::span<const int64_t> extents,
                const Ints& tried, int64_t* chosen) {
  if (extents.size() <= 1 || parts <= 1) {
    for (const int64_t n : extents) {
      *chosen++ = std::min(parts, std::max<int64_t>(n, 1));
    }
    return;
  }
  Ints split(extents.size());
  double least = std::numeric_limits<double>::infinity();
  const Ints firsts = Parts(extents[0], parts, tried);
  for (auto first = firsts.rbegin(); first != firsts.rend(); ++first) {
    split[0] = *first;
    Distribute(parts / *first, extents.subspan(1), tried, &split[1]);
    double block = 1;
    for (size_t d = 0; d < split.size(); ++d) {
      block *= static_cast<double>(CeilDiv(extents[d], split[d]));
    }
    if (block < least) {
      least = block;
      std::copy(split.begin(), split.end(), chosen);
    }
  }
}

}  // namespace

std::vector<int64_t> Distribute(int64_t parts, std::span<const int64_t> extents,
                                int64_t tiles) {
  Ints chosen(extents.size(), 1);
  Distribute(parts, extents, Tried(tiles), chosen.data());
  return chosen;
}

std::vector<Space> Candidates(int64_t tiles, const Space& space,
                              const std::array<int64_t, 3>& grains) {
  const Ints tried = Tried(tiles);
  const Ints along[] = {
      Parts(space[0], tiles, tried),
      Parts(space[1], tiles, tried, kOutputs, grains[0]),
      Parts(space[2], tiles, tried, kOutputs, grains[1]),
      Parts(space[3], tiles, tried, kInputs, grains[2]),
  };
  // They are not kept: most are no candidates.
  const auto for_all = [&](const auto& visit) {
    for (const int64_t b : along[0]) {
      for (const int64_t m : along[1]) {
        if (b * m > tiles) break;
        for (const int64_t n : along[2]) {
          if (b * m * n > tiles) break;
          for (const int64_t k : along[3]) {
            if (b * m * n * k > tiles) break;
            visit(Space{b, m, n, k});
          }
        }
      }
    }
  };
  const auto used = [](const Space& parts) {
    return parts[0] * parts[1] * parts[2] * parts[3];
  };
  const double least = kLeastUsed * static_cast<double>(tiles);
  size_t all = 0, whole = 0;
  for_all([&](const Space& parts) {
    ++all;
    whole += parts[3] == 1 || used(parts) > least;
  });
  std::vector<Space> found;
  found.reserve(all <= kManySplits ? all : whole);
  for_all([&](const Space& parts) {
    if (all <= kManySplits || parts[3] == 1 || used(parts) > least) {
      found.push_back(parts);
    }
  });
  for (size_t d = 1; d < space.size(); ++d) {
    const int64_t grain = grains[d - 1];
    for_all([&](Space parts) {
      if (parts[d] != 1) return;
      const int64_t most = std::min(tiles / used(parts), space[d]);
      const int64_t block = CeilDiv(space[d], most);
      parts[d] = CeilDiv(space[d], CeilDiv(block, grain) * grain);
      const bool listed =
          std::binary_search(along[d].begin(), along[d].end(), parts[d]);
      if (!listed && used(parts) > least) found.push_back(parts);
    });
  }
  return found;
}

}  // namespace ipu::plan
