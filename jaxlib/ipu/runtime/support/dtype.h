// Element types, with the numbers of PJRT_Buffer_Type and jaxlib/ipu/dtypes.py
// (pjrt/dtype.cc checks them).

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_DTYPE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_DTYPE_H_

#include <cstdint>

namespace ipu {

// Bytes from outside may hold any other number, too, until they are checked.
enum class DType : uint8_t {
  kNone = 0,  // no element type
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
  // Only in arguments and results: tensors hold them as bytes.
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
  kI4 = 21,
  kU4 = 22,
  kI2 = 24,
  kU2 = 25,
  kF8E4M3 = 26,
  kF8E3M4 = 27,
  kF8E8M0FNU = 28,
  kF4E2M1FN = 29,
};

// The number, for messages and for tables.
constexpr uint8_t Number(DType dtype) { return static_cast<uint8_t>(dtype); }

constexpr bool IsComplex(DType dtype) {
  return dtype == DType::kC64 || dtype == DType::kC128;
}

// Bytes of one element; 0 if `dtype` is not the type of a tensor.
constexpr uint32_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI16:
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kU32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kU64:
    case DType::kF64:
      return 8;
    default:
      return 0;
  }
}

// Bytes of one element of a type that arguments and results may have: those of
// tensors, complex types and types of at most 8 bits. 0 for any other.
constexpr uint32_t HostItemSize(DType dtype) {
  switch (dtype) {
    case DType::kC64:
      return 8;
    case DType::kC128:
      return 16;
    case DType::kF8E5M2:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3B11FNUZ:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E4M3FNUZ:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
    case DType::kF8E4M3:
    case DType::kF8E3M4:
    case DType::kF8E8M0FNU:
    case DType::kF4E2M1FN:
      return 1;
    default:
      return ItemSize(dtype);
  }
}

constexpr bool IsInteger(DType dtype) {
  return dtype >= DType::kI8 && dtype <= DType::kU64;
}

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_DTYPE_H_
