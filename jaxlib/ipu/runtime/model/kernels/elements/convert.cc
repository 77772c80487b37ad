#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"

#include "jaxlib/ipu/runtime/model/kernels/simd/half.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int kN = kLanes<uint32_t>;

// Applies kOp, which maps kN elements of From to kN of To, to `n` elements.
template <typename From, typename To, auto kOp>
void Run(const void* from, void* to, int64_t n) {
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  if (n == 1) return StoreOne(to, kOp(LoadOne<Vector<From, kN>>(from)));
  for (; n >= kN; n -= kN, source += kN, target += kN) {
    Store(target, kOp(Load<Vector<From, kN>>(source)));
  }
  if (n > 0) StoreSome(target, n, kOp(LoadSome<Vector<From, kN>>(source, n)));
}

template <typename From, typename To>
Vector<To, kN> Cast(const Vector<From, kN>& from) {
  return ConvertLanes<To>(from);
}

template <typename From, typename To>
constexpr ConvertFn kCast = Run<From, To, Cast<From, To>>;

Vector<uint8_t, kN> ToBool(const Vector<uint32_t, kN>& from) {
  return ConvertLanes<uint8_t>(from != 0 ? Vector<uint32_t>{} + 1
                                         : Vector<uint32_t>{});
}

Halves ToBf16(const Floats& x) { return Narrow(Bf16Bits(x)); }

}  // namespace

ConvertFn FindLoad(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return kCast<uint8_t, uint32_t>;
    case DType::kU16:
      return kCast<uint16_t, uint32_t>;
    case DType::kI8:
      return kCast<int8_t, int32_t>;
    case DType::kI16:
      return kCast<int16_t, int32_t>;
    case DType::kF16:
      return Run<uint16_t, float, FromF16>;
    case DType::kBF16:
      return Run<uint16_t, float, FromBf16>;
    default:
      return nullptr;
  }
}

ConvertFn FindStore(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Run<uint32_t, uint8_t, ToBool>;
    case DType::kI8:
    case DType::kU8:
      return kCast<uint32_t, uint8_t>;
    case DType::kI16:
    case DType::kU16:
      return kCast<uint32_t, uint16_t>;
    case DType::kF16:
      return Run<float, uint16_t, F16Bits>;
    case DType::kBF16:
      return Run<float, uint16_t, ToBf16>;
    default:
      return nullptr;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
