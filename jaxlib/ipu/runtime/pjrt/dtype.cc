#include "jaxlib/ipu/runtime/pjrt/dtype.h"

#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {
namespace {

constexpr bool Is(DType dtype, PJRT_Buffer_Type type) {
  return Number(dtype) == type;
}

static_assert(Is(DType::kBool, PJRT_Buffer_Type_PRED));
static_assert(Is(DType::kI2, PJRT_Buffer_Type_S2));
static_assert(Is(DType::kI4, PJRT_Buffer_Type_S4));
static_assert(Is(DType::kI8, PJRT_Buffer_Type_S8));
static_assert(Is(DType::kI16, PJRT_Buffer_Type_S16));
static_assert(Is(DType::kI32, PJRT_Buffer_Type_S32));
static_assert(Is(DType::kI64, PJRT_Buffer_Type_S64));
static_assert(Is(DType::kU2, PJRT_Buffer_Type_U2));
static_assert(Is(DType::kU4, PJRT_Buffer_Type_U4));
static_assert(Is(DType::kU8, PJRT_Buffer_Type_U8));
static_assert(Is(DType::kU16, PJRT_Buffer_Type_U16));
static_assert(Is(DType::kU32, PJRT_Buffer_Type_U32));
static_assert(Is(DType::kU64, PJRT_Buffer_Type_U64));
static_assert(Is(DType::kF16, PJRT_Buffer_Type_F16));
static_assert(Is(DType::kBF16, PJRT_Buffer_Type_BF16));
static_assert(Is(DType::kF32, PJRT_Buffer_Type_F32));
static_assert(Is(DType::kF64, PJRT_Buffer_Type_F64));
static_assert(Is(DType::kC64, PJRT_Buffer_Type_C64));
static_assert(Is(DType::kC128, PJRT_Buffer_Type_C128));
static_assert(Is(DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2));
static_assert(Is(DType::kF8E4M3, PJRT_Buffer_Type_F8E4M3));
static_assert(Is(DType::kF8E3M4, PJRT_Buffer_Type_F8E3M4));
static_assert(Is(DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN));
static_assert(Is(DType::kF8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ));
static_assert(Is(DType::kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ));
static_assert(Is(DType::kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ));
static_assert(Is(DType::kF8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU));
static_assert(Is(DType::kF4E2M1FN, PJRT_Buffer_Type_F4E2M1FN));

}  // namespace

DTypeInfo InfoOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {1, 1, "bool"};
    case DType::kI2:
      return {1, 26, "i2"};
    case DType::kI4:
      return {1, 21, "i4"};
    case DType::kI8:
      return {1, 2, "i8"};
    case DType::kI16:
      return {2, 3, "i16"};
    case DType::kI32:
      return {4, 4, "i32"};
    case DType::kI64:
      return {8, 5, "i64"};
    case DType::kU2:
      return {1, 27, "ui2"};
    case DType::kU4:
      return {1, 22, "ui4"};
    case DType::kU8:
      return {1, 6, "ui8"};
    case DType::kU16:
      return {2, 7, "ui16"};
    case DType::kU32:
      return {4, 8, "ui32"};
    case DType::kU64:
      return {8, 9, "ui64"};
    case DType::kF16:
      return {2, 10, "f16"};
    case DType::kBF16:
      return {2, 16, "bf16"};
    case DType::kF32:
      return {4, 11, "f32"};
    case DType::kF64:
      return {8, 12, "f64"};
    case DType::kC64:
      return {8, 15, "complex64"};
    case DType::kC128:
      return {16, 18, "complex128"};
    case DType::kF8E5M2:
      return {1, 19, "f8E5M2"};
    case DType::kF8E4M3:
      return {1, 28, "f8E4M3"};
    case DType::kF8E3M4:
      return {1, 29, "f8E3M4"};
    case DType::kF8E4M3FN:
      return {1, 20, "f8E4M3FN"};
    case DType::kF8E4M3B11FNUZ:
      return {1, 23, "f8E4M3B11FNUZ"};
    case DType::kF8E5M2FNUZ:
      return {1, 24, "f8E5M2FNUZ"};
    case DType::kF8E4M3FNUZ:
      return {1, 25, "f8E4M3FNUZ"};
    case DType::kF8E8M0FNU:
      return {1, 33, "f8E8M0FNU"};
    case DType::kF4E2M1FN:
      return {1, 32, "f4E2M1FN"};
    default:
      return {0, 0, ""};
  }
}

}  // namespace ipu
