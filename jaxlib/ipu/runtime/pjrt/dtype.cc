#include "jaxlib/ipu/runtime/pjrt/dtype.h"

#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

DTypeInfo InfoOf(DType dtype) {
  switch (dtype) {
    case PJRT_Buffer_Type_PRED:
      return {1, 1};
    case PJRT_Buffer_Type_S2:
      return {1, 26};
    case PJRT_Buffer_Type_S4:
      return {1, 21};
    case PJRT_Buffer_Type_S8:
      return {1, 2};
    case PJRT_Buffer_Type_S16:
      return {2, 3};
    case PJRT_Buffer_Type_S32:
      return {4, 4};
    case PJRT_Buffer_Type_S64:
      return {8, 5};
    case PJRT_Buffer_Type_U2:
      return {1, 27};
    case PJRT_Buffer_Type_U4:
      return {1, 22};
    case PJRT_Buffer_Type_U8:
      return {1, 6};
    case PJRT_Buffer_Type_U16:
      return {2, 7};
    case PJRT_Buffer_Type_U32:
      return {4, 8};
    case PJRT_Buffer_Type_U64:
      return {8, 9};
    case PJRT_Buffer_Type_F16:
      return {2, 10};
    case PJRT_Buffer_Type_BF16:
      return {2, 16};
    case PJRT_Buffer_Type_F32:
      return {4, 11};
    case PJRT_Buffer_Type_F64:
      return {8, 12};
    case PJRT_Buffer_Type_C64:
      return {8, 15};
    case PJRT_Buffer_Type_C128:
      return {16, 18};
    case PJRT_Buffer_Type_F8E5M2:
      return {1, 19};
    case PJRT_Buffer_Type_F8E4M3:
      return {1, 28};
    case PJRT_Buffer_Type_F8E3M4:
      return {1, 29};
    case PJRT_Buffer_Type_F8E4M3FN:
      return {1, 20};
    case PJRT_Buffer_Type_F8E4M3B11FNUZ:
      return {1, 23};
    case PJRT_Buffer_Type_F8E5M2FNUZ:
      return {1, 24};
    case PJRT_Buffer_Type_F8E4M3FNUZ:
      return {1, 25};
    case PJRT_Buffer_Type_F8E8M0FNU:
      return {1, 33};
    case PJRT_Buffer_Type_F4E2M1FN:
      return {1, 32};
    default:
      return {0, 0};
  }
}

}  // namespace ipu
