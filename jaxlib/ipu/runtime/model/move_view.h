// Views in the terms of a tensor as views of the memory behind it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_
#define JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// One dimension of a move: how many elements, and the steps between them in
// the source and in the destination.
struct MoveDim {
  int64_t extent;
  int64_t source_stride;
  int64_t destination_stride;
};

struct MoveWalk {
  int64_t source_offset;
  std::vector<MoveDim> dims;
};

// A move counts elements in the row-major order of its tensors. A placed
// source has no storage of that order: this expresses its side in elements of
// its root. Dimensions are split where they cross from one dimension of the
// tensor into the next; UNIMPLEMENTED if that is not enough.
StatusOr<MoveWalk> WalkSource(const program::Move& move,
                              const program::Tensor& source, bool placed);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_MOVE_VIEW_H_
