// The mapping between register types and C++ types.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_REGISTER_TYPES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_REGISTER_TYPES_H_

#include <cstdint>
#include <type_traits>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

// Calls f with a default value of the C++ type and returns the result.
template <typename F>
auto WithRegister(program::RegisterType type, const F& f) {
  using program::RegisterType;
  switch (type) {
    case RegisterType::kF32:
      return f(float{});
    case RegisterType::kF64:
      return f(double{});
    case RegisterType::kI32:
      return f(int32_t{});
    case RegisterType::kU32:
      return f(uint32_t{});
    case RegisterType::kI64:
      return f(int64_t{});
    case RegisterType::kU64:
      return f(uint64_t{});
  }
  __builtin_unreachable();
}

// The inverse mapping.
template <typename T>
constexpr program::RegisterType RegisterTypeOf() {
  using program::RegisterType;
  if (std::is_same_v<T, float>) return RegisterType::kF32;
  if (std::is_same_v<T, double>) return RegisterType::kF64;
  if (std::is_same_v<T, int32_t>) return RegisterType::kI32;
  if (std::is_same_v<T, uint32_t>) return RegisterType::kU32;
  if (std::is_same_v<T, int64_t>) return RegisterType::kI64;
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return RegisterType::kU64;
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_REGISTER_TYPES_H_
