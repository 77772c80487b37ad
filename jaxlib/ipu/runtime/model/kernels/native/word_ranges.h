// Which runs can be computed in lanes of 16 or 8 bits.
//
// Elements of 8 and 16 bits are computed in registers of 32. Lanes of 16 bits,
// twice as many in a vector, are enough if no higher bit of a register is ever
// needed. A lane always holds the low bits of its register. Sums, products and
// bitwise operations need no more than these; divisions, comparisons and right
// shifts need lanes that determine the value, which follows from its range. Of
// runs over elements of 8 bits, many need no more than lanes of 8.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_RANGES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_RANGES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

namespace ipu::model::IPU_SIMD_NS {

// The values that an integer register may have, as numbers of its type.
struct Range {
  int64_t least, most;

  // Whether a signed or an unsigned lane of 1 or 2 bytes has the register's
  // value.
  bool FitsSigned(int bytes = 2) const {
    const int64_t end = int64_t{1} << (8 * bytes - 1);
    return least >= -end && most < end;
  }
  bool FitsUnsigned(int bytes = 2) const {
    return least >= 0 && most < int64_t{1} << (8 * bytes);
  }
  bool Fits(int bytes = 2) const {
    return FitsSigned(bytes) || FitsUnsigned(bytes);
  }
  bool operator==(const Range&) const = default;
};

// The range of a register of 32 bits, read as another type.
Range As(program::RegisterType type, Range range);

// The bits of an invariant that is known when the program is loaded.
std::optional<uint32_t> Constant(const NativeValue& value);

// The divisor of a DIVIDE_BY or REMAINDER_BY; nothing if it is not known.
std::optional<uint32_t> Divisor(std::span<const NativeValue> values,
                                const NativeValue& division);

// The range of each value of a run, or nothing if lanes of 16 bits are not
// enough.
std::optional<std::vector<Range>> WordRanges(
    std::span<const NativeValue> values);

// Whether some reader of each value needs more than the low 8 bits of its lane.
// The others need not be reduced to 8 bits before they are read.
std::vector<bool> NeedWords(std::span<const NativeValue> values,
                            const std::vector<Range>& ranges);

// Whether lanes of 8 bits are enough for a run with these ranges: all elements
// have 8 bits, nothing is divided, and what is compared or shifted to the right
// fits.
bool BytesSuffice(std::span<const NativeValue> values,
                  const std::vector<Range>& ranges);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_RANGES_H_
