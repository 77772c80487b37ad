// The reductions of collectives. Blocks are accumulated in the cache, in the
// order of the arrays; 16-bit floats in f32, rounded once.

#include <algorithm>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/elements/elements.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/monoids.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int64_t kBlock = 512;  // elements

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

template <typename T, typename Op, typename V>
void Combine(const char* const* from, size_t count, char* to, int64_t n) {
  V sums[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    const T* first = reinterpret_cast<const T*>(from[0]) + begin;
    for (int64_t i = 0; i < size; ++i) sums[i] = static_cast<V>(first[i]);
    for (size_t k = 1; k < count; ++k) {
      const T* next = reinterpret_cast<const T*>(from[k]) + begin;
      for (int64_t i = 0; i < size; ++i) {
        sums[i] = Op::template Apply<V, V>(sums[i], static_cast<V>(next[i]));
      }
    }
    T* result = reinterpret_cast<T*>(to) + begin;
    for (int64_t i = 0; i < size; ++i) result[i] = static_cast<T>(sums[i]);
  }
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
