// Along which dimensions the indices of a compute set are independent: what
// `Facts` in program/schema.py says of codelets, for one step.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_INDEPENDENT_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_INDEPENDENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

// Whether a compute set over some of the indices of dimension d computes the
// same as the whole one computes for these. Operands and results are then
// restricted to these indices, too. The fields need not be valid. The accesses
// of a gather's operand then have to be along `DimsOf`, as they are not in the
// program (loader.cc).
bool IsIndependent(const Fields& fields, size_t rank, size_t d);

// The dimensions of a gather's operand whose index is that of dimension d of
// the iteration space, but for where windows start.
std::vector<int32_t> DimsOf(const Gather& gather, size_t d);

// See `Facts.packs`.
bool Packs(const Fields& fields);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_INDEPENDENT_H_
