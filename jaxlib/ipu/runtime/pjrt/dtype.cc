#include "jaxlib/ipu/runtime/pjrt/dtype.h"

#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

DTypeInfo InfoOf(DType dtype) {
  switch (dtype) {
    case PJRT_Buffer_Type_PRED:
      return {1, 1, "bool"};
    case PJRT_Buffer_Type_S2:
      return {1, 26, "i2"};
    case PJRT_Buffer_Type_S4:
      return {1, 21, "i4"};
    case PJRT_Buffer_Type_S8:
      return {1, 2, "i8"};
    case PJRT_Buffer_Type_S16:
      return {2, 3, "i16"};
    case PJRT_Buffer_Type_S32:
      return {4, 4, "i32"};
    case PJRT_Buffer_Type_S64:
      return {8, 5, "i64"};
    case PJRT_Buffer_Type_U2:
      return {1, 27, "ui2"};
    case PJRT_Buffer_Type_U4:
      return {1, 22, "ui4"};
    case PJRT_Buffer_Type_U8:
      return {1, 6, "ui8"};
    case PJRT_Buffer_Type_U16:
      return {2, 7, "ui16"};
    case PJRT_Buffer_Type_U32:
      return {4, 8, "ui32"};
    case PJRT_Buffer_Type_U64:
      return {8, 9, "ui64"};
    case PJRT_Buffer_Type_F16:
      return {2, 10, "f16"};
    case PJRT_Buffer_Type_BF16:
      return {2, 16, "bf16"};
    case PJRT_Buffer_Type_F32:
      return {4, 11, "f32"};
    case PJRT_Buffer_Type_F64:
      return {8, 12, "f64"};
    case PJRT_Buffer_Type_C64:
      return {8, 15, "complex64"};
    case PJRT_Buffer_Type_C128:
      return {16, 18, "complex128"};
    case PJRT_Buffer_Type_F8E5M2:
      return {1, 19, "f8E5M2"};
    case PJRT_Buffer_Type_F8E4M3:
      return {1, 28, "f8E4M3"};
    case PJRT_Buffer_Type_F8E3M4:
      return {1, 29, "f8E3M4"};
    case PJRT_Buffer_Type_F8E4M3FN:
      return {1, 20, "f8E4M3FN"};
    case PJRT_Buffer_Type_F8E4M3B11FNUZ:
      return {1, 23, "f8E4M3B11FNUZ"};
    case PJRT_Buffer_Type_F8E5M2FNUZ:
      return {1, 24, "f8E5M2FNUZ"};
    case PJRT_Buffer_Type_F8E4M3FNUZ:
      return {1, 25, "f8E4M3FNUZ"};
    case PJRT_Buffer_Type_F8E8M0FNU:
      return {1, 33, "f8E8M0FNU"};
    case PJRT_Buffer_Type_F4E2M1FN:
      return {1, 32, "f4E2M1FN"};
    default:
      return {0, 0, ""};
  }
}

}  // namespace ipu
