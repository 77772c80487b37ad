#include "jaxlib/ipu/runtime/support/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ipu {
namespace {

struct Dimension {
  int64_t size;
  int64_t source_stride;
  int64_t destination_stride;
};

// Drops dimensions of extent 1 and merges dimensions that are contiguous in
// both arrays: most copies in practice have one or two dimensions left.
std::vector<Dimension> Simplify(std::vector<Dimension> dimensions) {
  std::erase_if(dimensions, [](const Dimension& d) { return d.size == 1; });
  std::vector<Dimension> merged;
  for (const Dimension& inner : dimensions) {
    if (!merged.empty()) {
      Dimension& outer = merged.back();
      if (outer.source_stride == inner.source_stride * inner.size &&
          outer.destination_stride == inner.destination_stride * inner.size) {
        outer = {outer.size * inner.size, inner.source_stride,
                 inner.destination_stride};
        continue;
      }
    }
    merged.push_back(inner);
  }
  return merged;
}

// Copies a plane of elements whose size is a compile-time constant.
template <size_t kBytes>
void CopyPlane(const Dimension& outer, const Dimension& inner,
               const char* source, char* destination) {
  // Blocks that fit the first-level cache in both directions. Without them, a
  // transpose fetches a cache line per element.
  constexpr int64_t kBlock = 32;
  for (int64_t i0 = 0; i0 < outer.size; i0 += kBlock) {
    const int64_t i1 = std::min(i0 + kBlock, outer.size);
    for (int64_t j0 = 0; j0 < inner.size; j0 += kBlock) {
      const int64_t j1 = std::min(j0 + kBlock, inner.size);
      for (int64_t i = i0; i < i1; ++i) {
        const char* from = source + i * outer.source_stride;
        char* to = destination + i * outer.destination_stride;
        for (int64_t j = j0; j < j1; ++j) {
          std::memcpy(to + j * inner.destination_stride,
                      from + j * inner.source_stride, kBytes);
        }
      }
    }
  }
}

void CopyRuns(const Dimension& outer, size_t run_bytes, const char* source,
              char* destination) {
  for (int64_t i = 0; i < outer.size; ++i) {
    std::memcpy(destination + i * outer.destination_stride,
                source + i * outer.source_stride, run_bytes);
  }
}

using PlaneFunction = void (*)(const Dimension&, const Dimension&, const char*,
                               char*);

PlaneFunction PlaneFunctionFor(size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return CopyPlane<1>;
    case 2:
      return CopyPlane<2>;
    case 4:
      return CopyPlane<4>;
    case 8:
      return CopyPlane<8>;
    default:
      return CopyPlane<16>;
  }
}

}  // namespace

std::vector<int64_t> RowMajorStrides(std::span<const int64_t> shape,
                                     size_t element_bytes) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = static_cast<int64_t>(element_bytes);
  for (size_t i = shape.size(); i > 0; --i) {
    strides[i - 1] = stride;
    stride *= shape[i - 1];
  }
  return strides;
}

void StridedCopy(std::span<const int64_t> shape, size_t element_bytes,
                 const void* source, std::span<const int64_t> source_strides,
                 void* destination,
                 std::span<const int64_t> destination_strides) {
  std::vector<Dimension> dimensions;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return;
    dimensions.push_back({shape[i], source_strides[i], destination_strides[i]});
  }
  dimensions = Simplify(std::move(dimensions));

  // An innermost dimension that is contiguous on both sides is copied in runs.
  const auto element = static_cast<int64_t>(element_bytes);
  size_t run_bytes = element_bytes;
  if (!dimensions.empty() && dimensions.back().source_stride == element &&
      dimensions.back().destination_stride == element) {
    run_bytes *= dimensions.back().size;
    dimensions.pop_back();
  }
  const bool in_runs = run_bytes != element_bytes;

  // Copy one plane at a time: the dimension with the smallest source stride and
  // the one with the smallest destination stride.
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) {
                     return std::abs(a.destination_stride) >
                            std::abs(b.destination_stride);
                   });
  Dimension inner = {1, 0, 0}, outer = {1, 0, 0};
  if (!dimensions.empty()) {
    inner = dimensions.back();
    dimensions.pop_back();
  }
  if (!in_runs && !dimensions.empty()) {
    auto densest = std::min_element(dimensions.begin(), dimensions.end(),
                                    [](const Dimension& a, const Dimension& b) {
                                      return std::abs(a.source_stride) <
                                             std::abs(b.source_stride);
                                    });
    outer = *densest;
    dimensions.erase(densest);
  }

  // Iterate over the remaining dimensions, innermost first.
  const PlaneFunction copy_plane = PlaneFunctionFor(element_bytes);
  std::vector<int64_t> index(dimensions.size(), 0);
  auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(destination);
  while (true) {
    if (in_runs) {
      CopyRuns(inner, run_bytes, from, to);
    } else {
      copy_plane(outer, inner, from, to);
    }
    size_t d = dimensions.size();
    for (; d > 0; --d) {
      const Dimension& dimension = dimensions[d - 1];
      from += dimension.source_stride;
      to += dimension.destination_stride;
      if (++index[d - 1] < dimension.size) break;
      from -= dimension.source_stride * dimension.size;
      to -= dimension.destination_stride * dimension.size;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace ipu
