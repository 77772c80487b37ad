#include "jaxlib/ipu/runtime/model/kernels/copy/dims.h"

namespace ipu::model::IPU_SIMD_NS {

Nest MakeNest(int64_t item_size, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& destination_strides) {
  Nest nest;
  std::vector<Dim> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    Dim dim{shape[d], source_strides[d] * item_size,
            destination_strides[d] * item_size};
    if (dim.destination < 0) {
      nest.source_offset += (dim.extent - 1) * dim.source;
      nest.destination_offset += (dim.extent - 1) * dim.destination;
      dim.source = -dim.source;
      dim.destination = -dim.destination;
    }
    dims.push_back(dim);
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) {
    return a.destination > b.destination;
  });
  for (const Dim& inner : dims) {
    if (!nest.dims.empty()) {
      Dim& outer = nest.dims.back();
      if (outer.source == inner.source * inner.extent &&
          outer.destination == inner.destination * inner.extent) {
        outer = {outer.extent * inner.extent, inner.source, inner.destination};
        continue;
      }
    }
    nest.dims.push_back(inner);
  }
  return nest;
}

}  // namespace ipu::model::IPU_SIMD_NS
