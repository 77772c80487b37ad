#include "jaxlib/ipu/runtime/model/kernels/native/word_division.h"

#include <algorithm>
#include <bit>

namespace ipu::model::IPU_SIMD_NS {

WordReciprocal WordReciprocalOf(int64_t divisor, Range x) {
  WordReciprocal r;
  const int64_t largest = std::max(-x.least, x.most);
  r.zero = divisor > largest;
  if (r.zero) return r;
  r.is_signed = x.least < 0;
  const int bits = r.is_signed ? 15 : 16;  // of a multiplier
  const int l = std::bit_width(static_cast<uint64_t>(divisor - 1));

  const int k = bits + l - 1;
  const int64_t power = int64_t{1} << k;
  const int64_t multiplier = power / divisor + 1;
  const int64_t excess = multiplier * divisor - power;
  r.corrected = k < 16 || multiplier >> bits != 0 || largest * excess >= power;
  r.multiplier =
      static_cast<uint16_t>(r.corrected ? 2 * power / divisor + 1 : multiplier);
  r.shift = r.corrected ? l - 1 : k - 16;
  return r;
}

}  // namespace ipu::model::IPU_SIMD_NS
