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

// As m = (2^16 + e) / divisor with 0 < e <= divisor, |x| * e < 2^16, which
// suffices (see WordReciprocalOf).
std::optional<uint16_t> ByteReciprocalOf(int64_t divisor, Range x) {
  if (divisor > std::max(-x.least, x.most)) return 0;
  const int64_t multiplier = (int64_t{1} << 16) / divisor + 1;
  const int64_t most = x.least < 0 ? 0x7fff : 0xffff;
  if (multiplier > most) return std::nullopt;
  return static_cast<uint16_t>(multiplier);
}

}  // namespace ipu::model::IPU_SIMD_NS
