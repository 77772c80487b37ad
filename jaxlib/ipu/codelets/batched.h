// An operand or a result that has a part for each matrix of a batch.

#ifndef JAXLIB_IPU_CODELETS_BATCHED_H_
#define JAXLIB_IPU_CODELETS_BATCHED_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model::IPU_SIMD_NS {

// [count, ...], without regard to how the rest of it is laid out.
struct Batched {
  View view;
  int64_t between;  // elements from one matrix to the next

  template <typename T>
  T* At(const Memory& memory, int64_t i) const {
    return reinterpret_cast<T*>(view.Data(memory)) + i * between;
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_BATCHED_H_
