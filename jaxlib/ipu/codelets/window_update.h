// How a scatter updates a window.

#ifndef JAXLIB_IPU_CODELETS_WINDOW_UPDATE_H_
#define JAXLIB_IPU_CODELETS_WINDOW_UPDATE_H_

#include <cstdint>
#include <memory>

#include "jaxlib/ipu/codelets/windows.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/dims.h"
#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model::IPU_SIMD_NS {

// Combines the windows of a result with updates, element by element.
class WindowUpdate {
 public:
  virtual ~WindowUpdate() = default;

  // Updates columns [begin, end) of `count` windows, one after another.
  virtual void Apply(const Windows::Place* places, int64_t count,
                     const char* updates, char* result, int64_t begin,
                     int64_t end) const = 0;

  // The same of even windows [first, last) (see Windows::AreEven), which it
  // locates itself.
  void ApplyEven(const Windows& windows, const Memory& memory, int64_t first,
                 int64_t last, const char* updates, char* result, int64_t begin,
                 int64_t end) const;

  // Updates singles [begin, end) (see Windows::AreSingles), one after another.
  virtual void ApplySingles(const Windows& windows, const Memory& memory,
                            const char* updates, char* result, int64_t begin,
                            int64_t end) const = 0;

  // The extent of a window along the dimension that threads may divide.
  int64_t columns() const { return nest_.dims[column_].extent; }

  // Whether threads may divide it: every element of the result is in the same
  // column of all windows that contain it.
  bool columns_apart() const { return columns_apart_; }

  static StatusOr<std::unique_ptr<WindowUpdate>> Make(
      const Windows& windows, DType dtype, const program::Scatter& fields);

 protected:
  WindowUpdate(const Windows& windows, int64_t item_size);

  // Loops from updates (source) to the result (destination); at least one.
  Nest nest_;
  size_t column_ = 0;  // the longest dimension, preferably one that is apart
  bool columns_apart_ = false;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_WINDOW_UPDATE_H_
