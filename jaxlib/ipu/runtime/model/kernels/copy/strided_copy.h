// Copies between two strided views of the same shape.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/copy/dims.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS {

// A copy whose shape and strides are known: simplified once, when it is made,
// and then run on any pair of addresses. Items are of any size. Strides count
// items; those of the source may be zero (broadcast) and either may be
// negative. Source and destination must not overlap.
class StridedCopy {
 public:
  StridedCopy(int64_t item_size, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& destination_strides);

  // Of the destination.
  int64_t bytes() const { return bytes_; }

  // Run is a memcpy of bytes() from one address to the other.
  bool dense() const {
    return kind_ == Kind::kDense && nest_.source_offset == 0 &&
           nest_.destination_offset == 0;
  }

  // On this thread.
  void Run(const char* source, char* destination) const;

  // On all threads, if it is worth while.
  void Run(const char* source, char* destination, ThreadPool& threads) const;

  // Copies of fewer bytes stay on one thread.
  static constexpr int64_t kParallelBytes = 128 << 10;

 private:
  enum class Kind : uint8_t {
    kNothing,
    kDense,      // one block
    kRows,       // rows of block_ bytes
    kRepeat,     // a block of block_ bytes, again and again
    kTranspose,  // the last two dimensions, contiguous on one side each
    kStrided,    // items of block_ bytes
  };

  void ShareBetweenThreads();
  void RunDims(const Dim* dims, const char* source, char* destination) const;
  void RunPlane(const Dim& outer, const Dim& inner, const char* source,
                char* destination) const;

  Kind kind_ = Kind::kNothing;
  int64_t block_ = 0;
  int64_t bytes_ = 0;
  // At least two dimensions unless there is nothing to copy or it is dense.
  // The last two are the plane that one call of a loop handles.
  Nest nest_;
  size_t split_dim_ = 0;  // that threads share
  int64_t split_grain_ = 1;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_
