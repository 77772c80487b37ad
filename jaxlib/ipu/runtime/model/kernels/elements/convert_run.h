// Loads and stores of strided runs of elements, with conversion.
//
// A matrix product computes in one of four types; these functions convert any
// element type to it, and its sums to the result's type.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_

#include <cstdint>
#include <type_traits>

#include "jaxlib/ipu/runtime/support/dtype.h"

#ifndef IPU_SIMD_NS
#error "Kernel sources are compiled once per instruction set, see factories.h"
#endif

namespace ipu::model::IPU_SIMD_NS {

// Loads `n` elements with a stride of `stride` elements into dense `to`.
template <typename T>
using LoadRun = void (*)(const char* from, int64_t stride, int64_t n, T* to);

// Stores dense `from` to `n` elements with a stride of `stride` elements.
template <typename T>
using StoreRun = void (*)(const T* from, int64_t n, char* to, int64_t stride);

// T is float, double, uint32_t or uint64_t. Unsigned integers represent the
// ring of integers modulo 2^bits, to which signed values belong through their
// two's complement. Returns null if there is no conversion to T (a float to an
// integer) or from it (an integer to a float, or to a wider integer).
template <typename T>
LoadRun<T> LoadRunOf(DType dtype);
template <typename T>
StoreRun<T> StoreRunOf(DType dtype);

// The one of the four types that represents register type T.
template <typename T>
using RunOf =
    std::conditional_t<std::is_floating_point_v<T>, T,
                       std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_
