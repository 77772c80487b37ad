// Folds that need no register program; see fold.h.

#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::ReduceKind;

template <typename Elements>
const Fold* HalvesOf(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return MonoidFold<float, Sum, Elements>::Get();
    case ReduceKind::kMax:
      return MonoidFold<float, Largest, Elements>::Get();
    case ReduceKind::kMin:
      return MonoidFold<float, Smallest, Elements>::Get();
    default:
      return nullptr;
  }
}

}  // namespace

const Fold* FoldOfHalves(DType dtype, ReduceKind kind) {
  if (dtype == DType::kF16) return HalvesOf<F16Elements>(kind);
  if (dtype == DType::kBF16) return HalvesOf<Bf16Elements>(kind);
  return nullptr;
}

const Fold* FoldOfSquares(DType dtype, ReduceKind kind) {
  if (kind != ReduceKind::kSum) return nullptr;
  if (dtype == DType::kF32) {
    return MonoidFold<float, Sum, Squares<float>>::Get();
  }
  if (dtype == DType::kF64) {
    return MonoidFold<double, Sum, Squares<double>>::Get();
  }
  return nullptr;
}

}  // namespace ipu::model::IPU_SIMD_NS
