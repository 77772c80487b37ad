#include "jaxlib/ipu/runtime/moves/far_dims.h"

#include <cstdlib>
#include <numeric>
#include <utility>

namespace ipu::moves {

int64_t Size(std::span<const FarDim> dims) {
  int64_t size = 1;
  for (const FarDim& d : dims) size *= d.extent;
  return size;
}

FarDims From(const FarDims& dims, size_t first) {
  return {dims.begin() + first, dims.end()};
}

std::vector<Stepped> JoinDims(const std::vector<Stepped>& stepped) {
  std::vector<Stepped> found;
  for (const auto& [stride, dim] : stepped) {
    if (!found.empty()) {
      auto& [inner, last] = found.back();
      if (stride == inner * last.extent && dim.far == last.far * last.extent) {
        last.extent *= dim.extent;
        continue;
      }
    }
    found.push_back({stride, dim});
  }
  return found;
}

std::vector<Stepped> SplitDims(std::vector<Stepped> stepped,
                               const std::vector<Factor>& factors) {
  int64_t unit = 1;
  for (size_t i = factors.size(); i-- > 1;) {
    unit *= factors[i].extent;
    std::vector<Stepped> found;
    for (auto [stride, dim] : stepped) {
      const int64_t size = unit / std::gcd(dim.far, unit);
      if (std::abs(dim.far) < unit && unit == size * std::abs(dim.far) &&
          dim.extent % size == 0) {
        found.push_back({stride, {size, dim.far}});
        stride *= size;
        dim = {dim.extent / size, dim.far * size};
      }
      found.push_back({stride, dim});
    }
    stepped = std::move(found);
  }
  return stepped;
}

}  // namespace ipu::moves
