#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_table.h"

namespace ipu::model::IPU_SIMD_NS {

template const Fold* FoldOf<int32_t>(program::ReduceKind);
template const Fold* FoldOf<uint32_t>(program::ReduceKind);

}  // namespace ipu::model::IPU_SIMD_NS
