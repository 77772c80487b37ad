// An operand or result with one part for each matrix of a batch.

#ifndef JAXLIB_IPU_CODELETS_BATCHED_H_
#define JAXLIB_IPU_CODELETS_BATCHED_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// A view of shape [count, ...]; the layout of the other dimensions is
// arbitrary.
struct Batched {
  View view;
  int64_t between;  // stride between matrices, in elements

  template <typename T>
  T* At(const Memory& memory, int64_t i) const {
    return reinterpret_cast<T*>(view.Data(memory)) + i * between;
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_BATCHED_H_
