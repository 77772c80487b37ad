#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_table.h"

namespace ipu::model::IPU_SIMD_NS {

template const Fold* FoldOf<int64_t>(program::ReduceKind);
template const Fold* FoldOf<uint64_t>(program::ReduceKind);

}  // namespace ipu::model::IPU_SIMD_NS
