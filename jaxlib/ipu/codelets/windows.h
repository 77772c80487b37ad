// Windows of a tensor whose places are given by indices, at run time: what
// gather and scatter share.

#ifndef JAXLIB_IPU_CODELETS_WINDOWS_H_
#define JAXLIB_IPU_CODELETS_WINDOWS_H_

#include <algorithm>
#include <cstdint>
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
};

// Reads a scalar start index and clamps it.
int64_t ClampedStart(uint8_t dtype, const char* index, int64_t limit);

// The windows of one compute set. The tensor is what the windows lie in, the
// other is what goes with them: a gather's result, a scatter's updates.
struct Windows {
  // As many are located at once.
  static constexpr int64_t kBlock = 256;

  // Where a window is: bytes to its first element.
  struct Place {
    int64_t tensor;
    int64_t other;
  };
  // Steps are in bytes.
  struct Batch {
    int64_t extent;
    int64_t index;
    int64_t tensor;
    int64_t other;
  };
  struct Component {
    int64_t index;   // bytes from the index vector's start
    int64_t tensor;  // bytes in the tensor for one index
    int64_t limit;   // the highest start that fits
  };

  std::vector<Batch> batch;  // outermost first; at least one
  std::vector<Component> components;
  int64_t count = 0;       // windows
  bool none_fits = false;  // the tensor is smaller than a window
  uint8_t index_dtype = 0;

  // Of one window; strides in elements.
  std::vector<int64_t> extents;
  std::vector<int64_t> tensor_strides;
  std::vector<int64_t> other_strides;
  std::vector<bool> moves;  // windows lie at different places along it

  // Checks the fields and that no window that fits reaches outside.
  static StatusOr<Windows> Make(const std::string& codelet,
                                const std::vector<int64_t>& shape,
                                const WindowFields& fields, const View& tensor,
                                const Operand& indices, const Operand& other);

  // Where windows [begin, end) are, in order; returns how many it found. Those
  // that do not fit are moved until they do if `clamp`, else left out.
  int64_t Locate(const char* indices, int64_t begin, int64_t end, bool clamp,
                 Place* places) const;

  // Whether they are single elements, named by one index each, that go with
  // evenly spaced others, or the same one for all.
  bool AreSingles() const;

  // offsets[i] = bytes to single begin + i, for begin + i < end; one that does
  // not fit is moved until it does if `clamp`, else negative.
  void LocateSingles(const char* indices, int64_t begin, int64_t end,
                     bool clamp, int64_t* offsets) const;

  // Calls visit(places, how many) for windows [begin, end), in order and some
  // at a time.
  template <typename Visit>
  void ForEach(const char* indices, int64_t begin, int64_t end, bool clamp,
               const Visit& visit) const {
    Place places[kBlock];
    for (; begin < end; begin += kBlock) {
      const int64_t n =
          Locate(indices, begin, std::min(begin + kBlock, end), clamp, places);
      visit(places, n);
    }
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_WINDOWS_H_
