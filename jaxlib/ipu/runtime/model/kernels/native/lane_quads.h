// Finds operands that read neighbours: the columns of rows of a few elements.
// Four of them are transposed together, which takes less than half the
// instructions of shuffling each.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_QUADS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_QUADS_H_

#include <array>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"

namespace ipu::model::IPU_SIMD_NS {

// Values whose elements, of 4 bytes, follow each other in memory.
struct Quad {
  std::array<int, 4> values;  // -1: read by another quad
  const Source* first;        // of the first element
};

std::vector<Quad> FindQuads(std::span<const NativeValue> values);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_QUADS_H_
