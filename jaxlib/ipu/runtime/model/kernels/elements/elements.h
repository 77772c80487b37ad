// C++ types for elements in memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ELEMENTS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ELEMENTS_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// The 16-bit floats. Arithmetic converts them to f32 and rounds the result.
struct Half {
  uint16_t bits;
  operator float() const { return std::bit_cast<_Float16>(bits); }  // NOLINT
  Half() = default;
  explicit Half(float x)
      : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(x))) {}
};

struct BFloat {
  uint16_t bits;
  operator float() const {  // NOLINT
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  BFloat() = default;
  explicit BFloat(float x) {
    const uint32_t wide = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = wide + 0x7fff + (wide >> 16 & 1);
    bits = static_cast<uint16_t>((x == x ? rounded : wide | 0x400000) >> 16);
  }
};

// The type that arithmetic on elements of type T uses.
template <typename T>
using ValueOf =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat>,
                       float, T>;

// Calls f with a default value of the element type. Returns false if `dtype` is
// not an element type.
template <typename F>
bool WithElement(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kBool:
      return f(bool{}), true;
    case DType::kI8:
      return f(int8_t{}), true;
    case DType::kI16:
      return f(int16_t{}), true;
    case DType::kI32:
      return f(int32_t{}), true;
    case DType::kI64:
      return f(int64_t{}), true;
    case DType::kU8:
      return f(uint8_t{}), true;
    case DType::kU16:
      return f(uint16_t{}), true;
    case DType::kU32:
      return f(uint32_t{}), true;
    case DType::kU64:
      return f(uint64_t{}), true;
    case DType::kF16:
      return f(Half{}), true;
    case DType::kF32:
      return f(float{}), true;
    case DType::kF64:
      return f(double{}), true;
    case DType::kBF16:
      return f(BFloat{}), true;
    default:
      return false;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ELEMENTS_H_
