// Translates the source of a move from a placed tensor to its root.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_
#define JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// One dimension of a move: its extent and its strides, in elements, in the
// source and the destination.
struct MoveDim {
  int64_t extent;
  int64_t source_stride;
  int64_t destination_stride;
};

struct MoveDims {
  int64_t source_offset;
  std::vector<MoveDim> dims;
};

// A move addresses elements in the row-major order of its tensors. A placed
// source has no storage in that order, so this expresses the source side as a
// strided view of its root. Dimensions of the move are split where they cross
// from one dimension of the tensor into the next. UNIMPLEMENTED if the source
// is not a strided view even then.
StatusOr<MoveDims> SourceDims(const program::Move& move,
                              const program::Tensor& source, bool placed);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_
