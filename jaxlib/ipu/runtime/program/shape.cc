#include "jaxlib/ipu/runtime/program/shape.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {

int64_t Count(const std::vector<int64_t>& shape) {
  if (shape.size() > kHighestRank) return -1;
  int64_t count = 1;
  bool empty = false;
  for (int64_t n : shape) {
    if (n < 0 || n > kMostElements) return -1;
    empty |= n == 0;
    if (n > 1 && count > kMostElements / n) return -1;
    count *= std::max<int64_t>(n, 1);
  }
  return empty ? 0 : count;
}

bool Inside(const std::vector<int64_t>& shape, int64_t offset,
            const std::vector<int64_t>& strides, int64_t size) {
  // Kernels multiply strides before checking whether there are any elements.
  for (int64_t stride : strides) {
    if (stride < -kMostElements || stride > kMostElements) return false;
  }
  if (Count(shape) == 0) return offset >= 0 && offset <= kMostElements;
  if (offset < 0 || offset >= size) return false;
  int64_t lowest = offset;
  int64_t highest = offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t reach;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(reach < 0 ? lowest : highest, reach,
                               reach < 0 ? &lowest : &highest)) {
      return false;
    }
  }
  return lowest >= 0 && highest < size;
}

bool Apart(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // strides and extents
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1) dims.emplace_back(std::abs(strides[d]), shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // within the element's root, so it cannot overflow
  for (const auto& [stride, extent] : dims) {
    if (stride <= reach) return false;
    reach += (extent - 1) * stride;
  }
  return true;
}

bool Dense(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides) {
  int64_t dense = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (strides[d] != dense) return false;
    dense *= std::max<int64_t>(shape[d], 1);
  }
  return true;
}

int64_t Bytes(const Tensor& tensor) {
  return Count(tensor.shape) * ItemSize(tensor.dtype);
}

}  // namespace ipu::program
