// Large maps whose readers compute them themselves.
//
// A softmax of 10^7 numbers computes e^(x - m), which it first adds up and then
// divides by the sum. A tile has its part of them in SRAM, where it costs
// nothing to keep. The model has them in memory: it writes 40 MB, for which the
// processor also reads them, and reads them twice. To read x instead and to
// compute the exponential twice takes less time.
//
// Only what other steps could have computed anyway is changed: elements of a
// map that nothing but maps and reductions over the same iteration space reads.
// Rows that fit the cache run in bands instead (bands.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_RECOMPUTED_MAPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_RECOMPUTED_MAPS_H_

#include <deque>
#include <vector>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/step_roots.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// Returns the steps without such maps. Those that read them are replaced by
// steps that are added to `made`. Roots that would overwrite what these read
// get other addresses, also in `roots` (see FindBands).
std::vector<ComputeSet> RecomputeMaps(std::vector<ComputeSet> steps,
                                      JoinSite& site,
                                      std::vector<ArenaRoot>& roots,
                                      std::deque<program::Execute>& made);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_RECOMPUTED_MAPS_H_
