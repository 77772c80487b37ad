// Element types, with the numbers of PJRT_Buffer_Type and jaxlib/ipu/dtypes.py.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_DTYPE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_DTYPE_H_

#include <cstdint>

namespace ipu::program {

enum DType : uint8_t {
  kBool = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  // Only in arguments and results: tensors hold real and imaginary parts.
  kC64 = 14,
  kC128 = 15,
};

constexpr bool IsComplex(uint8_t dtype) {
  return dtype == kC64 || dtype == kC128;
}

// Bytes of one element; 0 if `dtype` is not an element type.
constexpr uint32_t ItemSize(uint8_t dtype) {
  switch (dtype) {
    case kBool:
    case kI8:
    case kU8:
      return 1;
    case kI16:
    case kU16:
    case kF16:
    case kBF16:
      return 2;
    case kI32:
    case kU32:
    case kF32:
      return 4;
    case kI64:
    case kU64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

// Bytes of one element of a type that arguments and results may have: those
// above, complex types and types of less than 8 bits. 0 for any other.
constexpr uint32_t HostItemSize(uint8_t dtype) {
  if (IsComplex(dtype)) return dtype == kC64 ? 8 : 16;
  if (dtype >= 16 && dtype <= 29 && dtype != 23) return 1;
  return ItemSize(dtype);
}

constexpr bool IsInteger(uint8_t dtype) {
  return dtype >= kI8 && dtype <= kU64;
}

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_DTYPE_H_
