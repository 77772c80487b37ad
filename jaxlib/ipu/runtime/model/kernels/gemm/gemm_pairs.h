// Products of integers of at most 16 bits, two terms at a time.
//
// Processors multiply two pairs of 16-bit integers and add up the products in
// as long as one product of 32 bits takes. Sums are modulo 2^32 as those of
// single terms are, so that both give the same bits.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_

#include <immintrin.h>

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Whether all values of the type are signed integers of 16 bits.
inline bool IsShort(uint8_t dtype) {
  return dtype == program::kBool || dtype == program::kI8 ||
         dtype == program::kU8 || dtype == program::kI16;
}

// c + the sum of the products of the lower and of the upper halves of a and b.
[[gnu::always_inline]] inline Vector<uint32_t> MultiplyAddPairs(
    Vector<uint32_t> a, Vector<uint32_t> b, Vector<uint32_t> c) {
#if IPU_AVX512
  return c + (Vector<uint32_t>)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return c + (Vector<uint32_t>)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  const auto low = [](Vector<uint32_t> v) {
    return (Vector<uint32_t>)((Vector<int32_t>)(v << 16) >> 16);
  };
  const auto high = [](Vector<uint32_t> v) {
    return (Vector<uint32_t>)((Vector<int32_t>)v >> 16);
  };
  return c + low(a) * low(b) + high(a) * high(b);
#endif
}

// Makes pairs of the terms of `count` rows or columns: those of term k begin at
// from[k * count], those of pair k at to[k * count], which may be the same
// place. An odd last term's partner is 0.
inline void JoinTerms(const uint32_t* from, int64_t count, int64_t terms,
                      uint32_t* to) {
  using Lanes = Vector<uint32_t>;
  constexpr int64_t kLane = kLanes<uint32_t>;
  const int64_t whole = (count - 1) / kLane * kLane;
  const Mask<uint32_t> mask(count - whole);
  const Lanes low = Broadcast(0xffffu);
  for (int64_t k = 0; k + 2 <= terms; k += 2, from += 2 * count, to += count) {
    const uint32_t* const second = from + count;
    for (int64_t i = 0; i < whole; i += kLane) {
      Store(to + i, (Load<Lanes>(from + i) & low) | Load<Lanes>(second + i)
                                                        << 16);
    }
    mask.Store(to + whole, (mask.Load(from + whole) & low) |
                               mask.Load(second + whole) << 16);
  }
  if (terms % 2 == 0) return;
  for (int64_t i = 0; i < whole; i += kLane) {
    Store(to + i, Load<Lanes>(from + i) & low);
  }
  mask.Store(to + whole, mask.Load(from + whole) & low);
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_
