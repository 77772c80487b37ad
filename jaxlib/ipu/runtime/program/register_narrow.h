// Integers of register programs that are computed in 64 bits though 32 suffice.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_NARROW_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_NARROW_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {

// Computes what is cut to 32 bits in 32 bits, if it is made of indices and
// constants and never exceeds them, as the counters of random numbers: a vector
// has twice as many lanes of 32 bits. `shape` is the iteration space.
void NarrowIntegers(RegisterCode& code, const std::vector<int64_t>& shape);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_NARROW_H_
