// The folds of one register type; included only by fold_*.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_TABLE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_TABLE_H_

#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_arg.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
const Fold* FoldOf(program::ReduceKind kind) {
  using program::ReduceKind;
  switch (kind) {
    case ReduceKind::kMax:
      return MonoidFold<T, Largest>::Get();
    case ReduceKind::kMin:
      return MonoidFold<T, Smallest>::Get();
    case ReduceKind::kArgmax:
      return ArgFold<T, true>::Get();
    case ReduceKind::kArgmin:
      return ArgFold<T, false>::Get();
    default:
      break;
  }
  // The other kinds do not depend on signedness.
  if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
    return FoldOf<std::make_unsigned_t<T>>(kind);
  } else {
    switch (kind) {
      case ReduceKind::kSum:
        return MonoidFold<T, Sum>::Get();
      case ReduceKind::kProduct:
        return MonoidFold<T, Multiplied>::Get();
      default:
        break;
    }
    if constexpr (std::is_integral_v<T>) {
      switch (kind) {
        case ReduceKind::kAnd:
          return MonoidFold<T, BitAnd>::Get();
        case ReduceKind::kOr:
          return MonoidFold<T, BitOr>::Get();
        case ReduceKind::kXor:
          return MonoidFold<T, BitXor>::Get();
        default:
          break;
      }
    }
    return nullptr;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_TABLE_H_
