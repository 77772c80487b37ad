// Long Fourier transforms that a program computes in steps.
//
// A transform of length a * b is a product with the matrix of one of length a,
// a rotation of each number, and a product with the matrix of one of length b
// (ops/fft.py): that is what tiles are efficient at, and their steps exchange
// whole tensors. The model transforms a row while it is in the cache, so it
// computes the steps as one product with the matrix of length a * b, if that is
// a length of which it has fast transforms. Each of the two products may have
// been joined before. Large rotations are two maps.
//
// Nothing in the program says that steps are a transform: it is seen in
// what they access, and in the constants by which the map multiplies.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_JOINED_TRANSFORMS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_JOINED_TRANSFORMS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/step_roots.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// Returns the steps, of which some are joined. Those that replace them are
// added to `made`, which they refer to. Roots that would overwrite what a
// joined step still has to read get other addresses, also in `roots` (see
// FindBands).
std::vector<ComputeSet> JoinTransforms(std::vector<ComputeSet> steps,
                                       JoinSite& site,
                                       std::vector<ArenaRoot>& roots,
                                       std::deque<program::Execute>& made);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_JOINED_TRANSFORMS_H_
