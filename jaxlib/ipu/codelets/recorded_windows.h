// Windows at run-time indices, recorded on the tape of a loop over few
// elements.

#ifndef JAXLIB_IPU_CODELETS_RECORDED_WINDOWS_H_
#define JAXLIB_IPU_CODELETS_RECORDED_WINDOWS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// A few windows of a single element or a few words each, contiguous in the
// tensor and in what corresponds to them, with indices of 32 bits: `x[i]`,
// `x[i, j]` and `x.at[i].set(y)` in a loop.
class RecordedWindows {
 public:
  // Empty if these windows are anything else. A gather moves those that do not
  // fit inside, a scatter `drops` them.
  static std::optional<RecordedWindows> Make(const Windows& windows, bool drops,
                                             const View& tensor,
                                             const View& other);
  // The same of one window, whose indices are scalars. `start` does not drop.
  static std::optional<RecordedWindows> Make(WindowStart start,
                                             std::vector<Item> indices,
                                             const View& tensor,
                                             const View& other, int64_t bytes);

  // These return false if the tape has too few slots left. They must stay where
  // they are until the loop has run for the last time.
  bool Slice(Tape& tape) const;
  bool Update(Tape& tape) const;
  bool Combine(Tape& tape, const program::Instruction& combine) const;

 private:
  struct Window {
    std::vector<Item> indices;
    Item tensor;
    Item other;
  };

  bool HasRoom(const Tape& tape) const;

  WindowStart start_;
  uint32_t item_size_ = 0;
  std::vector<Window> windows_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_RECORDED_WINDOWS_H_
