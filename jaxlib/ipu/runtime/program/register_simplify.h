// Register programs made shorter, for machines that work on blocks of values.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {

// Makes super-instructions where one pass over the values replaces two, drops
// what no output needs. Every output keeps its bits. `uniform[k]` says that
// operand k is the same for all or for many elements: what is computed of such
// values alone is left as it is, for it is computed as seldom.
void Simplify(RegisterCode& code, const std::vector<bool>& uniform);

// Which values are the same for all elements, given which operands are.
std::vector<bool> UniformValues(const RegisterCode& code,
                                const std::vector<bool>& uniform);

// An output that will be stored as the narrow type `dtype` needs no rounding or
// wrapping to that type before: the store does it. `stored[j]` is output j's
// dtype, 0 if it is not stored.
void LeaveRoundingToStores(RegisterCode& code,
                           const std::vector<uint8_t>& stored);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_SIMPLIFY_H_
