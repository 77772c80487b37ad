#include "jaxlib/ipu/runtime/pjrt/dtype.h"

#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

DTypeInfo InfoOf(DType dtype) {
  constexpr const char* kInteger = "0";
  constexpr const char* kFloat = "0.0";
  constexpr const char* kComplex = "(0.0, 0.0)";
  switch (dtype) {
    case PJRT_Buffer_Type_PRED:
      return {"i1", 1, "false"};
    case PJRT_Buffer_Type_S2:
      return {"i2", 1, kInteger};
    case PJRT_Buffer_Type_S4:
      return {"i4", 1, kInteger};
    case PJRT_Buffer_Type_S8:
      return {"i8", 1, kInteger};
    case PJRT_Buffer_Type_S16:
      return {"i16", 2, kInteger};
    case PJRT_Buffer_Type_S32:
      return {"i32", 4, kInteger};
    case PJRT_Buffer_Type_S64:
      return {"i64", 8, kInteger};
    case PJRT_Buffer_Type_U2:
      return {"ui2", 1, kInteger};
    case PJRT_Buffer_Type_U4:
      return {"ui4", 1, kInteger};
    case PJRT_Buffer_Type_U8:
      return {"ui8", 1, kInteger};
    case PJRT_Buffer_Type_U16:
      return {"ui16", 2, kInteger};
    case PJRT_Buffer_Type_U32:
      return {"ui32", 4, kInteger};
    case PJRT_Buffer_Type_U64:
      return {"ui64", 8, kInteger};
    case PJRT_Buffer_Type_F16:
      return {"f16", 2, kFloat};
    case PJRT_Buffer_Type_BF16:
      return {"bf16", 2, kFloat};
    case PJRT_Buffer_Type_F32:
      return {"f32", 4, kFloat};
    case PJRT_Buffer_Type_F64:
      return {"f64", 8, kFloat};
    case PJRT_Buffer_Type_C64:
      return {"complex<f32>", 8, kComplex};
    case PJRT_Buffer_Type_C128:
      return {"complex<f64>", 16, kComplex};
    case PJRT_Buffer_Type_F8E5M2:
      return {"f8E5M2", 1, kFloat};
    case PJRT_Buffer_Type_F8E4M3:
      return {"f8E4M3", 1, kFloat};
    case PJRT_Buffer_Type_F8E3M4:
      return {"f8E3M4", 1, kFloat};
    case PJRT_Buffer_Type_F8E4M3FN:
      return {"f8E4M3FN", 1, kFloat};
    case PJRT_Buffer_Type_F8E4M3B11FNUZ:
      return {"f8E4M3B11FNUZ", 1, kFloat};
    case PJRT_Buffer_Type_F8E5M2FNUZ:
      return {"f8E5M2FNUZ", 1, kFloat};
    case PJRT_Buffer_Type_F8E4M3FNUZ:
      return {"f8E4M3FNUZ", 1, kFloat};
    case PJRT_Buffer_Type_F8E8M0FNU:
      return {"f8E8M0FNU", 1, "1.0"};  // a format without a zero
    case PJRT_Buffer_Type_F4E2M1FN:
      return {"f4E2M1FN", 1, kFloat};
    default:
      return {nullptr, 0, nullptr};
  }
}

}  // namespace ipu
