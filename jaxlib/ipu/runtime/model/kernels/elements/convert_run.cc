#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"

#include <immintrin.h>

#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/elements/elements.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

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
    if constexpr (std::is_same_v<From, Half> && std::is_same_v<T, float>) {
      for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm_loadu_si128((const __m128i*)(p + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
      }
    }
#endif
    // Compilers vectorise by full vectors of From, which is too long for the
    // runs of matrix products.
    if constexpr (std::is_same_v<T, uint32_t> && std::is_integral_v<From> &&
                  !std::is_same_v<From, bool> && sizeof(From) < 4) {
      constexpr int kN = kLanes<T>;
      for (; i + kN <= n; i += kN) {
        model::IPU_SIMD_NS::Store(
            to + i,
            ConvertLanes<T>(model::IPU_SIMD_NS::Load<Vector<From, kN>>(p + i)));
      }
    }
    for (; i < n; ++i) to[i] = To<T>(p[i]);
  } else {
    int64_t i = 0;
    if constexpr (std::is_same_v<From, T>) {  // short strides by vectors
      WithFew(stride, [&](auto few) { i = CopyStrided<few>(p, n, to); });
    }
    for (; i < n; ++i) to[i] = To<T>(p[i * stride]);
  }
}

template <typename T, typename Result>
void Store(const T* __restrict from, int64_t n, char* to, int64_t stride) {
  Result* p = reinterpret_cast<Result*>(to);
  if (stride == 1) {
    int64_t i = 0;
#ifdef __F16C__
    if constexpr (std::is_same_v<Result, Half>) {
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
LoadRun<T> LoadRunOf(DType dtype) {
  LoadRun<T> run = nullptr;
  WithElement(dtype, [&]<typename From>(From) {
    if constexpr (std::is_integral_v<From> || std::is_floating_point_v<T>) {
      run = Load<T, From>;
    }
  });
  return run;
}

template <typename T>
StoreRun<T> StoreRunOf(DType dtype) {
  StoreRun<T> run = nullptr;
  WithElement(dtype, [&]<typename Result>(Result) {
    constexpr bool kStores =
        std::is_integral_v<T>
            ? std::is_integral_v<Result> && sizeof(Result) <= sizeof(T)
            : std::is_floating_point_v<Result> ||
                  (std::is_same_v<T, float> && !std::is_integral_v<Result>);
    if constexpr (kStores) run = Store<T, Result>;
  });
  return run;
}

template LoadRun<float> LoadRunOf<float>(DType);
template LoadRun<double> LoadRunOf<double>(DType);
template LoadRun<uint32_t> LoadRunOf<uint32_t>(DType);
template LoadRun<uint64_t> LoadRunOf<uint64_t>(DType);
template StoreRun<float> StoreRunOf<float>(DType);
template StoreRun<double> StoreRunOf<double>(DType);
template StoreRun<uint32_t> StoreRunOf<uint32_t>(DType);
template StoreRun<uint64_t> StoreRunOf<uint64_t>(DType);

}  // namespace ipu::model::IPU_SIMD_NS
