// Copies between two strided views of the same shape.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/copy/dims.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS {

// A copy with a known shape and strides. The constructor simplifies the loop
// nest and selects an algorithm; Run then applies it to any pair of addresses.
// Items may have any size. Strides are in items and may be negative; those of
// the source may be zero (broadcast). Source and destination must not overlap.
class StridedCopy {
 public:
  StridedCopy(int64_t item_size, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& source_strides,
              const std::vector<int64_t>& destination_strides);

  // Bytes written to the destination.
  int64_t bytes() const { return bytes_; }

  // Whether Run is a memcpy of bytes() from one address to the other.
  bool dense() const {
    return kind_ == Kind::kDense && nest_.source_offset == 0 &&
           nest_.destination_offset == 0;
  }

  // Runs on the calling thread.
  void Run(const char* source, char* destination) const;

  // Runs on all threads if the copy is large enough.
  void Run(const char* source, char* destination, ThreadPool& threads) const;

  // Copies of fewer bytes run on one thread.
  static constexpr int64_t kParallelBytes = 128 << 10;

 private:
  enum class Kind : uint8_t {
    kNothing,
    kDense,      // one block
    kRows,       // rows of block_ bytes
    kRepeat,     // one block of block_ bytes, repeated
    kTranspose,  // the last two dimensions; each is contiguous on one side
    kGroups,     // the same, of groups; these are the two dimensions before
    kStrided,    // items of block_ bytes
  };

  // Makes a transpose of short rows or columns one of groups of them, if groups
  // are contiguous as well.
  void FindGroups();
  void ShareBetweenThreads();
  void RunDims(const Dim* dims, const char* source, char* destination) const;
  // The last dimensions that RunPlane handles.
  size_t plane_dims() const { return kind_ == Kind::kGroups ? 4 : 2; }
  void RunPlane(const Dim* dims, const char* source, char* destination) const;

  Kind kind_ = Kind::kNothing;
  int64_t block_ = 0;
  int64_t bytes_ = 0;
  // Has at least two dimensions unless there is nothing to copy or the copy is
  // dense. RunPlane handles the last ones.
  Nest nest_;
  size_t split_dim_ = 0;  // the dimension that threads share
  int64_t split_grain_ = 1;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_STRIDED_COPY_H_
