// What Python calls of the planner. No function takes the GIL or keeps anything
// between two calls. They return -1 if their arguments are not of the stated
// form, -2 if the host is out of memory.

#ifndef JAXLIB_IPU_RUNTIME_PLAN_FUNCTIONS_H_
#define JAXLIB_IPU_RUNTIME_PLAN_FUNCTIONS_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// Cuts dimensions: see Distribute. Reads the number of parts, the number of
// tiles, and the extents; writes the parts of each dimension.
int64_t ipu_distribute(const int64_t* numbers, size_t count, int64_t* parts);

// Cycles of the vertices for a block: reads the fields of DotUnit and of Block,
// and writes AmpCycles, HmacCycles and OuterCycles, each of the block and of
// the transposed one, then SharedCycles and ChainOf.
int64_t ipu_dot_cycles(const double* numbers, size_t count, double* cycles);

// Ranks the splits of a product: see Rank. Reads the fields of Product; writes
// the first `size` splits, each as its parts along (b, m, n, k), its number,
// its cycles and its bytes. Returns the number of all candidates.
int64_t ipu_product_splits(const double* product, size_t count, double* splits,
                           size_t size);

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_PLAN_FUNCTIONS_H_
