#include "jaxlib/ipu/runtime/model/move_view.h"

#include <cstdlib>
#include <string>

namespace ipu::model {
namespace {

// A dimension of the tensor with more than one element.
struct Axis {
  int64_t extent;
  int64_t dense;   // row-major stride in the tensor
  int64_t stride;  // stride in the root
};

std::vector<Axis> AxesOf(const program::Tensor& tensor) {
  std::vector<Axis> axes;  // innermost first
  int64_t dense = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    const int64_t n = tensor.shape[d];
    if (n == 1) continue;
    // Merge dimensions that are contiguous in the root.
    if (!axes.empty() &&
        tensor.strides[d] == axes.back().stride * axes.back().extent) {
      axes.back().extent *= n;
    } else {
      axes.push_back({n, dense, tensor.strides[d]});
    }
    dense *= n;
  }
  return axes;
}

// Appends a dimension of a move to `out`, split where it runs over the end of
// an axis.
void Split(MoveDim dim, const std::vector<Axis>& axes,
           std::vector<MoveDim>& out) {
  const int64_t step = std::abs(dim.source_stride);
  for (const Axis& axis : axes) {
    const int64_t whole = axis.dense * axis.extent;
    if (step == 0 || step % axis.dense != 0 || step >= whole) continue;
    if (whole % step != 0) break;
    const int64_t fit = whole / step;
    if (dim.extent <= fit || dim.extent % fit != 0) break;
    Split({dim.extent / fit, dim.source_stride * fit,
           dim.destination_stride * fit},
          axes, out);
    dim.extent = fit;
    break;
  }
  out.push_back(dim);
}

}  // namespace

StatusOr<MoveDims> SourceDims(const program::Move& move,
                              const program::Tensor& source, bool placed) {
  MoveDims found{move.source_offset, {}};
  for (size_t d = 0; d < move.shape.size(); ++d) {
    found.dims.push_back(
        {move.shape[d], move.source_strides[d], move.destination_strides[d]});
  }
  if (!placed) return found;

  const std::vector<Axis> axes = AxesOf(source);
  std::vector<MoveDim> dims;
  for (const MoveDim& dim : found.dims) Split(dim, axes, dims);

  // The lowest and highest index reached along each axis. No index may carry
  // from one axis into the next, because the stride in the root changes there.
  int64_t offset = source.offset;
  std::vector<int64_t> lowest(axes.size());
  std::vector<int64_t> highest(axes.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    const Axis& axis = axes[k];
    const int64_t index = found.source_offset / axis.dense % axis.extent;
    offset += index * axis.stride;
    lowest[k] = highest[k] = index;
  }
  for (MoveDim& dim : dims) {
    const int64_t sign = dim.source_stride < 0 ? -1 : 1;
    const int64_t step = std::abs(dim.source_stride);
    int64_t stride = 0;
    for (size_t k = 0; k < axes.size(); ++k) {
      const Axis& axis = axes[k];
      const int64_t steps = sign * (step / axis.dense % axis.extent);
      stride += steps * axis.stride;
      const int64_t reach = steps * (dim.extent - 1);
      (reach < 0 ? lowest : highest)[k] += reach;
    }
    dim.source_stride = stride;
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    if (lowest[k] < 0 || highest[k] >= axes[k].extent) {
      return Unimplemented("a move from placed tensor " +
                           std::to_string(move.source) +
                           " crosses its dimensions in a way that is not a "
                           "strided view of its root; "
                           "use the root as the source of the move instead");
    }
  }
  found.source_offset = offset;
  found.dims = std::move(dims);
  return found;
}

}  // namespace ipu::model
