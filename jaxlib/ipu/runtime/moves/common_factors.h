// Splits the iteration space of a move so that each dimension steps along one
// factor of the mapping at either end.
//
// What is counted along one dimension then does not depend on the others,
// except for dimensions that the same factor cuts (moved_elements.h).

#ifndef JAXLIB_IPU_RUNTIME_MOVES_COMMON_FACTORS_H_
#define JAXLIB_IPU_RUNTIME_MOVES_COMMON_FACTORS_H_

#include <array>

#include "jaxlib/ipu/runtime/moves/affine_access.h"
#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// Of the source and of the destination.
using Accesses = std::array<AffineAccess, 2>;

// The iteration space, and its strides at the source and at the destination.
struct Space {
  Ints shape;
  std::array<Ints, 2> strides;
};

// Splits dimensions, and joins and splits factors, until both ends' accesses
// have digits; returns whether they have.
bool Unify(Accesses& accesses, Space& space);

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_COMMON_FACTORS_H_
