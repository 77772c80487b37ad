// Index vectors that are concatenated from an array for each component, as of
// `x[i, j]`: tiles need the vectors, which they get in one exchange. Gather and
// Scatter of the model read the arrays instead, and nothing is copied.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_INDEX_ARRAYS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_INDEX_ARRAYS_H_

#include <cstddef>
#include <span>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// The operands of a Gather or a Scatter that are indices: one of vectors or,
// after `ReadIndexArrays`, one for each component. Of another step, none.
std::span<program::Access> IndexOperands(program::Execute& step);
std::span<const program::Access> IndexOperands(const program::Execute& step);

// Gives Gathers and Scatters whose index vectors are copied from arrays, and
// used for nothing else, the arrays as operands, if these have not changed by
// then. The copies move nothing any more. Requires a valid program.
void ReadIndexArrays(program::Program& program);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_INDEX_ARRAYS_H_
