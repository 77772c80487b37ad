// Division by constants in register programs.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_DIVISION_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_DIVISION_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {

// Replaces divisions and remainders of integers by a constant with DIVIDE_BY
// and REMAINDER_BY, which multiply and give the same values, and quotients of
// floats by a power of two with products. Divisors -1, 0 and 1 of integers
// remain. What becomes dead is not removed.
void DivideByMultiplying(RegisterCode& code);

// The divisor's magnitude of a DIVIDE_BY of 32 bits, given its multiplier.
uint32_t DivisorOf(const Instruction& divide_by, uint32_t multiplier);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_DIVISION_H_
