#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_table.h"

namespace ipu::model::IPU_SIMD_NS {

template const Fold* FoldOf<double>(program::ReduceKind);

}  // namespace ipu::model::IPU_SIMD_NS
