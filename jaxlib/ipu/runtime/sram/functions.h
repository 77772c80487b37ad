// What Python calls to assign addresses. No function takes the GIL or keeps
// anything between two calls.

#ifndef JAXLIB_IPU_RUNTIME_SRAM_FUNCTIONS_H_
#define JAXLIB_IPU_RUNTIME_SRAM_FUNCTIONS_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// Calls FirstFit (sram/first_fit.py).
//
// `lives` has the begin and the end of each interval of each piece, then of
// those that are placed; `intervals` [pieces + placed] their numbers, each at
// least 1. `figures` has size, step and weight of each piece, then the lowest
// address and the end of each placed one. Writes `addresses` [pieces]. Returns
// -2 if the host is out of memory, else 0.
int64_t ipu_first_fit(const int64_t* lives, const int64_t* intervals,
                      size_t pieces, size_t placed, const int64_t* figures,
                      int64_t base, size_t count, int64_t* addresses);

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_SRAM_FUNCTIONS_H_
