// Products of integers of at most 16 bits, two terms at a time.
//
// Processors multiply two pairs of 16-bit integers and add the products in the
// time of one 32-bit product. Sums are modulo 2^32 in either case, so both
// methods give the same bits.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Whether all values of the type fit into signed 16-bit integers.
inline bool IsShort(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kI8 || dtype == DType::kU8 ||
         dtype == DType::kI16;
}

// c + low(a) * low(b) + high(a) * high(b), with signed 16-bit halves.
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

// Whether the processor does so in one instruction.
inline bool HasDotProducts() {
  static const bool has = IPU_AVX512 && __builtin_cpu_supports("avx512vnni");
  return has;
}

#if IPU_AVX512

// The same, for such processors: kernels are compiled for others, too.
[[gnu::always_inline]] inline Vector<uint32_t> AddDotProducts(
    Vector<uint32_t> a, Vector<uint32_t> b, Vector<uint32_t> c) {
  asm("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}

#endif

// Joins the terms of `count` rows or columns in pairs. Term k starts at
// from[k * count], pair k at to[k * count]; `to` may equal `from`. The partner
// of an odd last term is 0.
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

// to[i] = the pair (low[i], high[i]).
template <typename Item>
void JoinItems(const Item* __restrict low, const Item* __restrict high,
               int64_t count, uint32_t* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<uint16_t>(low[i]) | static_cast<uint32_t>(high[i])
                                                << 16;
  }
}

// Packs rows whose terms are contiguous in memory.
template <typename Item>
void PackPairsOfTerms(const Matrix& matrix, const Item* from, IndexRange rows,
                      IndexRange k, uint32_t* to, int64_t step) {
  const int64_t pairs = (k.size() + 1) / 2;
  uint32_t* const dense =
      ThreadBuffers().vector.Get<uint32_t>(rows.size() * pairs);
  const Item* const first = from + matrix.column.At(k.begin);
  for (int64_t r = 0; r < rows.size(); ++r) {
    const Item* __restrict row = first + matrix.row.At(rows.begin + r);
    dense[(r + 1) * pairs - 1] = 0;  // in case the last term has no partner
    char* __restrict terms = reinterpret_cast<char*>(dense + r * pairs);
    for (int64_t i = 0; i < k.size(); ++i) {
      const int16_t term = row[i];
      std::memcpy(terms + i * sizeof term, &term, sizeof term);
    }
  }
  TransposeRun(dense, pairs, rows.size(), pairs, to, step);
}

// Packs terms whose rows are contiguous in memory.
template <typename Item>
void PackPairsOfRows(const Matrix& matrix, const Item* from, IndexRange rows,
                     IndexRange k, uint32_t* to, int64_t step) {
  const Item* const first = from + matrix.row.At(rows.begin);
  int64_t i = k.begin;
  for (; i + 2 <= k.end; i += 2, to += step) {
    JoinItems(first + matrix.column.At(i), first + matrix.column.At(i + 1),
              rows.size(), to);
  }
  if (i == k.end) return;
  const Item* const last = first + matrix.column.At(i);
  for (int64_t r = 0; r < rows.size(); ++r) {
    to[r] = static_cast<uint16_t>(last[r]);
  }
}

// Packs pairs of terms in the format of JoinTerms: pair k of row r goes to
// to[k * step + r]. May write 32 bytes beyond the last pair. Returns false and
// does nothing if neither rows nor terms are contiguous.
inline bool PackPairs(const Matrix& matrix, const char* from, IndexRange rows,
                      IndexRange k, uint32_t* to, int64_t step) {
  const bool terms = matrix.column.stride() == 1 && matrix.column.InOneRun(k);
  if (!terms && (matrix.row.stride() != 1 || !matrix.row.InOneRun(rows))) {
    return false;
  }
  const auto pack = [&]<typename Item>(Item) {
    const Item* const items = reinterpret_cast<const Item*>(from);
    if (terms) {
      PackPairsOfTerms(matrix, items, rows, k, to, step);
    } else {
      PackPairsOfRows(matrix, items, rows, k, to, step);
    }
  };
  if (matrix.dtype == DType::kI16) {
    pack(int16_t{});
  } else if (matrix.dtype == DType::kI8) {
    pack(int8_t{});
  } else {
    pack(uint8_t{});
  }
  return true;
}

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PAIRS_H_
