// One product with a Fourier matrix that stands for two and the rotation
// between them; see joined_transforms.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_JOINED_PRODUCT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_JOINED_PRODUCT_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// One output of a map: x * cosine + swapped * sine, as numbers of operands, in
// some order.
struct Rotation {
  size_t x, swapped, cosine, sine;
};

// Two products, and the outputs of one or two maps by which they are joined.
struct Chain {
  struct Link {
    size_t map;  // a step
    Rotation rotation;
    size_t output;
  };

  size_t first, second;  // steps
  std::vector<Link> links;
};

// The joined product, or nothing if the steps are no longer transform. It has
// no matrix: its right operand is a single element. Its step is added to
// `made`.
std::optional<ComputeSet> JoinProducts(const std::vector<ComputeSet*>& steps,
                                       const Chain& chain,
                                       const char* constants,
                                       std::deque<program::Execute>& made);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_JOINED_PRODUCT_H_
