// Interleaves arrays: the first items of all of them, then the second ones.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_INTERLEAVE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_INTERLEAVE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS {

// A copy of a few arrays, each to every so many items of another one: stacks
// along the last dimension, pairs of indices, complex numbers of their planes.
class Interleave {
 public:
  // Nothing if these copies are anything else.
  static std::optional<Interleave> Make(const std::vector<CopyPlan>& plans);

  void Run(const Memory& memory, ThreadPool& threads) const;

 private:
  // Interleaves items [begin, end) of the sources.
  using Function = void (*)(const char* const* sources, int64_t begin,
                            int64_t end, char* to);
  static Function Find(size_t sources, uint32_t item_size);

  struct Source {
    uint32_t base;
    int64_t offset;
  };

  Function function_ = nullptr;
  std::vector<Source> sources_;
  Source to_{};
  int64_t count_ = 0;  // items of each source
  int64_t row_bytes_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_INTERLEAVE_H_
