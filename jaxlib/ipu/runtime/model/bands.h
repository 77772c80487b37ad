// Runs consecutive steps band by band instead of one after the other.
//
// A step goes through whole tensors. If these are larger than a cache, the next
// step reads from memory what this one has just written. Consecutive steps
// often work on rows that do not depend on each other: a softmax reduces each
// row to its maximum, subtracts it, sums up and divides. Such rows are cut into
// bands that fit the second-level cache; each band goes through all of the
// steps before the next one does, and the threads share the bands.
//
// Which rows are independent is a fact of each codelet (program/independent.h).
// That no step writes what another one accesses for another row is checked
// here, on the bytes that they access.
//
// What only these steps access is never written to its tensor: a band keeps its
// rows in memory that the next band overwrites, so that they stay in the cache.
// Its bytes in the arena, which other tensors use at other times, do not count.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_BANDS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_BANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

// A root in the arena that no step but compute sets accesses.
struct ArenaRoot {
  uint32_t number;  // the same for all views of it
  int64_t address, bytes;
  int64_t accesses;  // in the program; 0: it is not such a root
};

// One that no step but those of some bands accesses, and whose rows a band
// keeps in memory of its own.
struct InnerRoot {
  int64_t address, bytes;
  std::vector<uint32_t> tensors;  // those that are views of it
};

// Steps [begin, end), which are run in bands.
struct Bands {
  size_t begin, end;
  std::vector<size_t> dims;  // step begin + i is cut along dimension dims[i]
  int64_t extent;            // of each of these dimensions, in rows
  int64_t rows;              // of a band; the last one may have fewer
  std::vector<InnerRoot> inner;
};

// Finds runs of consecutive steps that are worth running in bands, in order.
// Needs no kernels: the codelets' fields need not be valid, but views have to
// be inside their storage. For `storage` see ScheduleCopies. `roots` has the
// root of each tensor, or is empty: then nothing is kept.
std::vector<Bands> FindBands(std::span<const ComputeSet> steps,
                             const std::vector<uint32_t>& storage,
                             std::span<const ArenaRoot> roots = {});

// Makes one kernel that runs all steps of `bands` (band_kernel.cc). Fails if a
// step's kernel cannot be made for fewer rows.
KernelOr MakeBandKernel(std::span<const ComputeSet> steps, const Bands& bands,
                        const Factories& factories);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_BANDS_H_
