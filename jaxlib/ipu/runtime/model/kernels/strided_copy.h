// Copies between two strided views of the same shape.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_STRIDED_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_STRIDED_COPY_H_

#include <cstdint>
#include <vector>

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

  // The bytes are one block on both sides: Run is a memcpy.
  bool dense() const { return kind_ == Kind::kDense; }

  // On this thread.
  void Run(const char* source, char* destination) const;

  // On all threads, if it is worth while.
  void Run(const char* source, char* destination, ThreadPool& threads) const;

  // Copies of fewer bytes stay on one thread.
  static constexpr int64_t kParallelBytes = 128 << 10;

  // Steps are in bytes.
  struct Dim {
    int64_t extent;
    int64_t source;
    int64_t destination;
  };

 private:
  enum class Kind : uint8_t {
    kNothing,
    kDense,      // one block
    kRows,       // rows of block_ bytes
    kRepeat,     // a block of block_ bytes, again and again
    kTranspose,  // the last two dimensions, contiguous on one side each
    kStrided,    // items of block_ bytes
  };

  void RunDims(const Dim* dims, const char* source, char* destination) const;
  void RunPlane(const Dim& outer, const Dim& inner, const char* source,
                char* destination) const;

  Kind kind_ = Kind::kNothing;
  int64_t block_ = 0;
  int64_t bytes_ = 0;
  // Added to the addresses, where a dimension was turned around.
  int64_t source_offset_ = 0;
  int64_t destination_offset_ = 0;
  // Outermost first; at least two unless there is nothing to copy or it is
  // dense. The last two are the plane that one call of a loop handles.
  std::vector<Dim> dims_;
  size_t split_dim_ = 0;  // that threads share
  int64_t split_grain_ = 1;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_STRIDED_COPY_H_
