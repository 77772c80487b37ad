// The table of this instruction set's kernels.

#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"

namespace ipu::model::IPU_SIMD_NS {

const Factories& Table() {
  static constexpr Factories kTable = {
      .map = MakeMap,
      .reduce = MakeReduce,
      .dot = MakeDot,
      .scan = MakeScan,
      .gather = MakeGather,
      .scatter = MakeScatter,
      .dynamic_slice = MakeDynamicSlice,
      .dynamic_update = MakeDynamicUpdate,
      .copy = MakeCopy,
      .scalar_loop = MakeScalarLoop,
  };
  return kTable;
}

}  // namespace ipu::model::IPU_SIMD_NS
