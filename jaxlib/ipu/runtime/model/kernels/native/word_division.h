// Division of 8- and 16-bit integers by a constant, by multiplying.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_DIVISION_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_DIVISION_H_

#include <cstdint>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"

namespace ipu::model::IPU_SIMD_NS {

// With `high` the high half of x * multiplier, a quotient that is rounded
// towards zero is
//   high >> shift                       x unsigned
//   (high + (x - high) / 2) >> shift    x unsigned, if `corrected`
//   (high >> shift) + (x < 0)           x signed
//   ((high + x) >> shift) + (x < 0)     x signed, if `corrected`
// or 0 if no x is as large as the divisor.
struct WordReciprocal {
  bool zero = false;
  bool is_signed = false;
  bool corrected = false;
  uint16_t multiplier = 0;
  int shift = 0;
};

// The reciprocal of a divisor from 2 on, for values of a range that fits 16
// bits. The corrected forms are those of Granlund and Montgomery, "Division by
// invariant integers using multiplication" (1994), figures 4.1 and 5.2, and
// hold for every x. The others have a multiplier of a bit less: with m = (2^k +
// e) / divisor and 0 < e, the product x * m / 2^k exceeds x / divisor by less
// than 1 / divisor, the distance to the next whole number, if |x| * e < 2^k.
WordReciprocal WordReciprocalOf(int64_t divisor, Range x);

// The multiplier m for which x * m / 2^16, rounded down, plus (x < 0), is a
// quotient that is rounded towards zero, as is the high byte of the high half
// of x * 2^8 * m; 0 if no x is as large as the divisor. For values of a range
// that fits 8 bits and divisors from 2 on. Nothing if x is signed, but m does
// not fit a signed word (the divisor is 2).
std::optional<uint16_t> ByteReciprocalOf(int64_t divisor, Range x);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_DIVISION_H_
