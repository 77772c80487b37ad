// Runs of elements, read and written with a change of type on the way.
//
// A matrix product computes in one of four types; these functions bring any
// element type to it, and its sums back to the result's type.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_

#include <cstdint>
#include <type_traits>

#ifndef IPU_SIMD_NS
#error "Kernel sources are compiled once per instruction set, see factories.h"
#endif

namespace ipu::model::IPU_SIMD_NS {

// Reads `n` elements, `stride` elements apart, into dense `to`.
template <typename T>
using LoadRun = void (*)(const char* from, int64_t stride, int64_t n, T* to);

// Writes dense `from` to `n` elements, `stride` elements apart.
template <typename T>
using StoreRun = void (*)(const T* from, int64_t n, char* to, int64_t stride);

// T is float, double, uint32_t or uint64_t; unsigned integers stand for the
// ring of integers modulo 2^bits, in which signed values take part by their
// two's complement. nullptr when the type cannot be brought to T (a float to
// an integer) or back (an integer to a float, or a wider one).
template <typename T>
LoadRun<T> LoadRunOf(uint8_t dtype);
template <typename T>
StoreRun<T> StoreRunOf(uint8_t dtype);

// The one of the four that stands for a register type.
template <typename T>
using RunOf =
    std::conditional_t<std::is_floating_point_v<T>, T,
                       std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_RUN_H_
