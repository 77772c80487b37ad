// Windows of a tensor whose starts are given by run-time indices, for gather
// and scatter.

#ifndef JAXLIB_IPU_CODELETS_WINDOWS_H_
#define JAXLIB_IPU_CODELETS_WINDOWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model::IPU_SIMD_NS {

// The fields that Gather and Scatter have in common (see schema.py).
struct WindowFields {
  uint32_t num_batch_dims;
  const std::vector<int32_t>& start_index_map;
  const std::vector<int64_t>& sizes;
  const std::vector<int32_t>& batch_dims;
  const std::vector<int32_t>& window_dims;
  bool clamp;  // whether windows that do not fit are moved inside or dropped
};

// Reads a scalar start index and clamps it.
int64_t ClampedStart(DType dtype, const char* index, int64_t limit);

// The windows of one compute set. `tensor` is what the windows are parts of;
// `other` is what corresponds to them: a gather's result or a scatter's
// updates.
struct Windows {
  // The number of windows that are located at a time.
  static constexpr int64_t kBlock = 256;

  // The location of a window: byte offsets of its first element.
  struct Place {
    int64_t tensor;
    int64_t other;
  };
  // A batch dimension; strides are in bytes.
  struct Batch {
    int64_t extent;
    int64_t index;
    int64_t tensor;
    int64_t other;
  };
  struct Component {
    size_t array;    // the one of `indices` that it is in
    int64_t index;   // bytes from the start of the index vector
    int64_t tensor;  // bytes in the tensor per index
    int64_t limit;   // the highest valid start
    int64_t wrap;    // added to negative indices
  };

  std::vector<Batch> batch;  // outermost first; at least one
  std::vector<Component> components;
  int64_t count = 0;       // windows
  bool none_fits = false;  // a window is larger than the tensor
  // An array of index vectors, or one of each component.
  std::vector<View> indices;
  DType index_dtype = DType::kNone;
  bool clamp = false;  // windows that do not fit are moved inside, not dropped
  bool even = false;   // see AreEven

  // The dimensions of one window; strides are in elements.
  std::vector<int64_t> extents;
  std::vector<int64_t> tensor_strides;
  std::vector<int64_t> other_strides;
  std::vector<bool> moves;  // windows may start at different places along it

  // Checks the fields, and that no window that fits reaches outside the tensor.
  // `indices` are one operand or one for each component (index_arrays.h).
  static StatusOr<Windows> Make(const std::string& codelet,
                                const ComputeSet& set,
                                const WindowFields& fields, const View& tensor,
                                std::span<const Operand> indices,
                                const Operand& other);

  // Locates windows [begin, end), at most kBlock of them, in order, and returns
  // the number found.
  int64_t Locate(const Memory& memory, int64_t begin, int64_t end,
                 Place* places) const;

  // Whether windows correspond to evenly spaced parts of the other (or all to
  // the same one) and start at offsets of 32 bits, which are not negative where
  // that says that a window is dropped.
  bool AreEven() const;
  // The same of windows that are single elements.
  bool AreSingles() const;

  // offsets[i] = the byte offset of even window begin + i, for begin + i < end
  // and at most kBlock of them. That of a dropped window is negative.
  void LocateEven(const Memory& memory, int64_t begin, int64_t end,
                  int32_t* offsets) const;

  // Calls visit(places, count) for windows [begin, end), in order, one block at
  // a time.
  template <typename Visit>
  void ForEach(const Memory& memory, int64_t begin, int64_t end,
               const Visit& visit) const {
    Place places[kBlock];
    for (; begin < end; begin += kBlock) {
      const int64_t n =
          Locate(memory, begin, std::min(begin + kBlock, end), places);
      visit(places, n);
    }
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_WINDOWS_H_
