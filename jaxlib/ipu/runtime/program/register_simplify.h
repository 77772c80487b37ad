// Transformations of register programs for engines that work on blocks of
// values.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {

// Fuses instructions into super-instructions, each of which replaces two passes
// over the values by one, divides by constants without a division where that is
// exact, and removes dead code. Outputs keep their bits.
// `uniform[k]` means that operand k has the same value for all or for many
// elements; what depends only on such values is not fused, because it is
// hoisted.
void Simplify(RegisterCode& code, const std::vector<bool>& uniform);

// Removes what no output depends on.
void DropDeadCode(RegisterCode& code);

// Which values are the same for all elements, given the operands that are.
std::vector<bool> UniformValues(const RegisterCode& code,
                                const std::vector<bool>& uniform);

// Which values are 16-bit floats on their way from an operand, from bits or
// from a constant to an output or to bits, without arithmetic in between. They
// have to keep their bits, even those of a signalling NaN. `dtypes` are those
// of the operands.
std::vector<bool> MovedValues(const RegisterCode& code,
                              const std::vector<DType>& dtypes);

// Removes roundings and wraps to the narrow type that an output is stored as,
// since the store does them. `stored[j]` is the dtype of output j, kNone if it
// is not stored.
void LeaveRoundingToStores(RegisterCode& code,
                           const std::vector<DType>& stored);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_
