// Ranks the splits of a matrix product over tiles (plan/matmul.py).

#ifndef JAXLIB_IPU_RUNTIME_PLAN_PRODUCT_SPLITS_H_
#define JAXLIB_IPU_RUNTIME_PLAN_PRODUCT_SPLITS_H_

#include <cstddef>
#include <vector>

#include "jaxlib/ipu/runtime/plan/cuts.h"
#include "jaxlib/ipu/runtime/plan/dot_cycles.h"

namespace ipu::plan {

// What the cycles and bytes of a split depend on. plan/product_splits.py has
// the same numbers in the same order.
struct Product {
  double tiles;
  double b, m, n, k;                 // The iteration space.
  double grain_m, grain_n, grain_k;  // Blocks are multiples of these.
  // Bytes of an element: of either operand, of a partial sum, and of a result
  // that sums are cast to, 0 if they are not.
  double lhs_bytes, rhs_bytes, sum_bytes, cast_bytes;
  double more_sums;      // 1 if a tile has sums that it adds to.
  double further_bytes;  // What else a tile has to hold,
  double room;           // and the bytes that all may take.
  // Bytes of an element of either operand that its exchange is charged for.
  double lhs_charged, rhs_charged;
  double tiles_per_bus, exchange_rate, route_cycles, sync_cycles;
  // Cycles of any vertex, and of casting an element of either operand before.
  double launch, lhs_casting, rhs_casting;
  // Of a loop for each term and result, and besides; a product of floats has
  // none, but the vertices of a unit.
  double loop_term, loop_output, loop_fixed;
  DotUnit unit;
  double vector;                   // 1 if one side is a vector.
  double rounds;                   // 1 if vertices may store f16.
  double cast_fixed, cast_output;  // Cycles of casting results.
  // The addition of partials: cycles besides its workers; of a worker's start;
  // elements of a step; cycles of a step, and of each further partial in it;
  // from how many elements on workers share none.
  double adding_fixed, adding_start, adding_width, adding_step, adding_partial,
      adding_shared;
  // The numbers of partials from which on there are two, or three stages.
  double two_stages, three_stages;
};

struct Split {
  Space parts;
  size_t number;  // Among all candidates.
  double cycles;  // A lower bound.
  double bytes;   // On the fullest tile.
};

// All candidates: first those that fit, by their cycles, then the others, by
// their bytes; of equal ones the first candidate is first. Only the first
// `count` are in order. A bound is that of the cheapest vertex, with the
// exchange of operands and the combination of partials; it is less than what
// the compiler charges by what rounding up adds to casts and to additions of
// other types than f16 and f32.
std::vector<Split> Rank(const Product& product, size_t count);

}  // namespace ipu::plan

#endif  // JAXLIB_IPU_RUNTIME_PLAN_PRODUCT_SPLITS_H_
