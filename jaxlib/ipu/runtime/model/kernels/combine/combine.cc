// The reductions of collectives. Blocks are accumulated in registers, in the
// order of the arrays; 16-bit floats in f32, rounded once.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/elements/elements.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/monoids.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// What is read of all arrays, and written to all results, before the next
// bytes: two cache lines. Measured on 8 arrays and results of 4 MiB, in
// processor time: 3 ms, and 8 ms if 2 KiB or more are read of each array in
// turn. Writing results 16 KiB at a time takes 4 ms.
constexpr int64_t kBlockBytes = 128;
// How far ahead arrays are fetched: the processor does not follow so many of
// them. Measured like this: 1.4 ms at 1 to 4 KiB, 1.6 at 512 bytes, and 2.1
// without.
constexpr int64_t kAhead = 2048;
constexpr int64_t kLine = 64;  // bytes of a cache line

// The type in which elements are combined: integers wrap.
template <typename T, bool kOrdered>
struct Computed {
  using type = ValueOf<T>;
};
template <typename T>
  requires std::is_integral_v<T>
struct Computed<T, false> {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Computed<bool, false> {
  using type = uint8_t;
};

// Fetches a later block of an array.
inline void FetchAhead(const void* block) {
  for (int64_t i = 0; i < kBlockBytes; i += kLine) {
    __builtin_prefetch(static_cast<const char*>(block) + kAhead + i);
  }
}

template <typename T, typename Op, typename V>
inline void CombineBlock(std::span<const char* const> from, int64_t begin,
                         int64_t size, T* result) {
  V sums[kBlockBytes / sizeof(T)];
  const T* first = reinterpret_cast<const T*>(from[0]) + begin;
  for (int64_t i = 0; i < size; ++i) sums[i] = static_cast<V>(first[i]);
  FetchAhead(first);
  for (const char* const other : from.subspan(1)) {
    const T* next = reinterpret_cast<const T*>(other) + begin;
    for (int64_t i = 0; i < size; ++i) {
      sums[i] = Op::template Apply<V, V>(sums[i], static_cast<V>(next[i]));
    }
    FetchAhead(next);
  }
  for (int64_t i = 0; i < size; ++i) result[i] = static_cast<T>(sums[i]);
}

// A whole block of elements that need no conversion. In vectors, as GCC keeps
// the sums of the loops above in memory: 8 arrays of 4 MiB took 1.9 ms, and 1.1
// like this.
template <typename Op, typename V>
inline void CombineVectors(std::span<const char* const> from, int64_t at,
                           char* result) {
  using Lanes = Vector<V>;
  constexpr int kCount = kBlockBytes / sizeof(Lanes);
  Lanes sums[kCount];
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) {
    sums[k] = Load<Lanes>(from[0] + at + k * sizeof(Lanes));
  }
  FetchAhead(from[0] + at);
  for (const char* const other : from.subspan(1)) {
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      const auto next = Load<Lanes>(other + at + k * sizeof(Lanes));
      sums[k] = Op::template Apply<V>(sums[k], next);
    }
    FetchAhead(other + at);
  }
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) {
    Store(result + k * sizeof(Lanes), sums[k]);
  }
}

bool AreAligned(std::span<char* const> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [](const char* array) {
    return reinterpret_cast<uintptr_t>(array) % sizeof(__m256i) == 0;
  });
}

void StreamBlock(const char* from, char* to) {
  for (size_t i = 0; i < kBlockBytes; i += sizeof(__m256i)) {
    _mm256_stream_si256(
        reinterpret_cast<__m256i*>(to + i),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
}

template <typename T, typename Op, typename V>
void Combine(std::span<const char* const> from, std::span<char* const> to,
             int64_t n, bool streams) {
  constexpr int64_t kBlock = kBlockBytes / sizeof(T);
  streams = streams && AreAligned(to);
  alignas(kVectorBytes) char block[kBlockBytes];
  T* const result = reinterpret_cast<T*>(block);
  int64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock) {
    if constexpr (sizeof(T) >= 4) {
      CombineVectors<Op, V>(from, begin * sizeof(T), block);
    } else {
      CombineBlock<T, Op, V>(from, begin, kBlock, result);
    }
    for (char* const array : to) {
      char* const at = array + begin * sizeof(T);
      if (streams) {
        StreamBlock(block, at);
      } else {
        std::memcpy(at, block, kBlockBytes);
      }
    }
  }
  CombineBlock<T, Op, V>(from, begin, n - begin, result);
  for (char* const array : to) {
    std::memcpy(array + begin * sizeof(T), block, (n - begin) * sizeof(T));
  }
  if (streams) _mm_sfence();
}

template <typename T, typename Op, bool kOrdered = false>
CombineFn Of() {
  return Combine<T, Op, typename Computed<T, kOrdered>::type>;
}

template <typename T>
CombineFn Find(program::ReduceKind kind) {
  using program::ReduceKind;
  constexpr bool kBits = std::is_integral_v<T>;
  if constexpr (!std::is_same_v<T, bool>) {
    switch (kind) {
      case ReduceKind::kSum:
        return Of<T, Sum>();
      case ReduceKind::kProduct:
        return Of<T, Multiplied>();
      case ReduceKind::kMax:
        return Of<T, Largest, true>();
      case ReduceKind::kMin:
        return Of<T, Smallest, true>();
      default:
        break;
    }
  }
  if constexpr (kBits) {
    switch (kind) {
      case ReduceKind::kAnd:
        return Of<T, BitAnd>();
      case ReduceKind::kOr:
        return Of<T, BitOr>();
      case ReduceKind::kXor:
        return Of<T, BitXor>();
      default:
        break;
    }
  }
  return nullptr;
}

}  // namespace

CombineFn FindCombine(DType dtype, program::ReduceKind kind) {
  CombineFn found = nullptr;
  WithElement(dtype,
              [&](auto element) { found = Find<decltype(element)>(kind); });
  return found;
}

}  // namespace ipu::model::IPU_SIMD_NS
