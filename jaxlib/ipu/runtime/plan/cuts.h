// Into how many parts dimensions may be cut (plan/cuts.py).

#ifndef JAXLIB_IPU_RUNTIME_PLAN_CUTS_H_
#define JAXLIB_IPU_RUNTIME_PLAN_CUTS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ipu::plan {

// Along the dimensions (b, m, n, k) of a matrix product.
using Space = std::array<int64_t, 4>;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Cuts several dimensions into at most `parts` parts with the smallest blocks;
// ties go to the split that cuts outer dimensions. The numbers of parts that
// are tried depend on `tiles`, the machine's number of tiles.
std::vector<int64_t> Distribute(int64_t parts, std::span<const int64_t> extents,
                                int64_t tiles);

// Splits of a product to consider, each once, in a fixed order: a few numbers
// of parts for each dimension, and, where one of (m, n, k) is whole, as many
// parts of it as tiles allow. Blocks of m, n and k are multiples of `grains`.
std::vector<Space> Candidates(int64_t tiles, const Space& space,
                              const std::array<int64_t, 3>& grains);

}  // namespace ipu::plan

#endif  // JAXLIB_IPU_RUNTIME_PLAN_CUTS_H_
