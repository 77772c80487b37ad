#include "jaxlib/ipu/runtime/model/kernels/convert_run.h"

#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::DType;

// bfloat16 is the upper half of a float.
struct Bf16 {
  uint16_t bits;

  operator float() const {  // NOLINT
    const uint32_t wide = uint32_t{bits} << 16;
    float x;
    std::memcpy(&x, &wide, sizeof x);
    return x;
  }
  operator double() const { return float{*this}; }  // NOLINT
  explicit Bf16(float x) {
    uint32_t wide;
    std::memcpy(&wide, &x, sizeof x);
    const uint32_t even = wide + 0x7fff + (wide >> 16 & 1);
    bits = x == x ? even >> 16 : wide >> 16 | 0x40;
  }
};

using F16 = _Float16;

template <typename T, typename From>
T To(From x) {
  if constexpr (std::is_same_v<From, bool>) {
    return static_cast<T>(x ? 1 : 0);
  } else {
    return static_cast<T>(x);
  }
}

template <typename T, typename From>
void Load(const char* from, int64_t stride, int64_t n, T* __restrict to) {
  const From* p = reinterpret_cast<const From*>(from);
  if (stride == 1) {
    int64_t i = 0;
#ifdef __F16C__
    if constexpr (std::is_same_v<From, F16> && std::is_same_v<T, float>) {
      for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm_loadu_si128((const __m128i*)(p + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
      }
    }
#endif
    for (; i < n; ++i) to[i] = To<T>(p[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = To<T>(p[i * stride]);
  }
}

template <typename T, typename Result>
void Store(const T* __restrict from, int64_t n, char* to, int64_t stride) {
  Result* p = reinterpret_cast<Result*>(to);
  if (stride == 1) {
    int64_t i = 0;
#ifdef __F16C__
    if constexpr (std::is_same_v<Result, F16>) {
      for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_loadu_ps(from + i);
        _mm_storeu_si128((__m128i*)(p + i),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
      }
    }
#endif
    for (; i < n; ++i) p[i] = static_cast<Result>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      p[i * stride] = static_cast<Result>(from[i]);
    }
  }
}

}  // namespace

template <typename T>
LoadRun<T> LoadRunOf(uint8_t dtype) {
  switch (dtype) {
    case DType::kBool:
      return Load<T, bool>;
    case DType::kI8:
      return Load<T, int8_t>;
    case DType::kI16:
      return Load<T, int16_t>;
    case DType::kI32:
      return Load<T, int32_t>;
    case DType::kI64:
      return Load<T, int64_t>;
    case DType::kU8:
      return Load<T, uint8_t>;
    case DType::kU16:
      return Load<T, uint16_t>;
    case DType::kU32:
      return Load<T, uint32_t>;
    case DType::kU64:
      return Load<T, uint64_t>;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    switch (dtype) {
      case DType::kF16:
        return Load<T, F16>;
      case DType::kBF16:
        return Load<T, Bf16>;
      case DType::kF32:
        return Load<T, float>;
      case DType::kF64:
        return Load<T, double>;
      default:
        break;
    }
  }
  return nullptr;
}

template <typename T>
StoreRun<T> StoreRunOf(uint8_t dtype) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kF16) return Store<float, F16>;
    if (dtype == DType::kBF16) return Store<float, Bf16>;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (dtype == DType::kF32) return Store<T, float>;
    if (dtype == DType::kF64) return Store<T, double>;
  } else {
    if (dtype == DType::kBool) return Store<T, bool>;
    switch (program::IsInteger(dtype) ? program::ItemSize(dtype) : 0) {
      case 1:
        return Store<T, uint8_t>;
      case 2:
        return Store<T, uint16_t>;
      case 4:
        return Store<T, uint32_t>;
      case 8:
        if constexpr (sizeof(T) == 8) return Store<T, uint64_t>;
        break;
      default:
        break;
    }
  }
  return nullptr;
}

template LoadRun<float> LoadRunOf<float>(uint8_t);
template LoadRun<double> LoadRunOf<double>(uint8_t);
template LoadRun<uint32_t> LoadRunOf<uint32_t>(uint8_t);
template LoadRun<uint64_t> LoadRunOf<uint64_t>(uint8_t);
template StoreRun<float> StoreRunOf<float>(uint8_t);
template StoreRun<double> StoreRunOf<double>(uint8_t);
template StoreRun<uint32_t> StoreRunOf<uint32_t>(uint8_t);
template StoreRun<uint64_t> StoreRunOf<uint64_t>(uint8_t);

}  // namespace ipu::model::IPU_SIMD_NS
