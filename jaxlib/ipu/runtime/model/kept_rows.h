// The rows of a root that a band keeps in its own memory (see bands.h);
// included only by bands.cc, which asks whether that is possible, and
// band_kernel.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KEPT_ROWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KEPT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

// Where a band keeps its rows of a root: all rows of it have the form [plane]
// [row][byte of the row], and a band has fewer rows.
struct KeptRows {
  int64_t begin;  // of the root, in the arena
  int64_t step;   // bytes of a row
  int64_t planes;
  int64_t extent;  // rows of the root
  int64_t rows;    // of a band
  int64_t at;      // in the band's memory

  int64_t bytes() const { return planes * rows * step; }

  // Lets a view of the root, whose row 0 and first dimension cut is `row_dim`,
  // address the band's memory. Returns false if it does not keep to its rows.
  bool Redirect(View& view, int32_t row_dim) const {
    const int64_t plane = extent * step, item = view.item_size;
    const int64_t place = view.offset - begin;
    if (place < 0) return false;
    int64_t low = place % plane, high = low + item;
    int64_t first = place / plane, last = first;
    view.offset = at + first * rows * step + low;
    for (size_t j = 0; j < view.shape.size(); ++j) {
      const int64_t stride = view.strides[j] * item;
      if (view.shape[j] == 0) return false;
      if (static_cast<int32_t>(j) == row_dim) {
        if (stride != step) return false;
        continue;
      }
      const int64_t reach = (view.shape[j] - 1) * stride;
      if (stride % plane == 0) {
        (reach < 0 ? first : last) += reach / plane;
        view.strides[j] = stride / plane * rows * step / item;
      } else {
        (reach < 0 ? low : high) += reach;
      }
    }
    return low >= 0 && high <= step && first >= 0 && last < planes;
  }
};

// An operand or result of a step that is cut along dimension d.
struct Use {
  const Operand* operand;
  size_t d;
  bool written;
};

// How a band keeps the rows of a root, at `at` in its memory, if that is
// possible. `uses` are all those of the root, in the order of access.
inline std::optional<KeptRows> Kept(int64_t address, int64_t bytes,
                                    const std::vector<Use>& uses,
                                    int64_t extent, int64_t rows, int64_t at) {
  // If the first one reads, it would read older values.
  if (uses.empty() || !uses[0].written) return std::nullopt;
  const Operand& o = *uses[0].operand;
  const int64_t step = o.Stride(uses[0].d) * o.view.item_size;
  if (step <= 0 || bytes % (step * extent) != 0) return std::nullopt;
  const KeptRows kept{address, step, bytes / (step * extent), extent, rows, at};
  for (const Use& use : uses) {
    View view = use.operand->view;
    if (view.base != kArenaBase ||
        !kept.Redirect(view, use.operand->dims[use.d])) {
      return std::nullopt;
    }
  }
  return kept;
}

// Calls body(operand, tensor, written) for all operands and results of a step,
// in the order of access; `tensor` is kNone if it is not known.
template <typename Body>
void ForUses(const ComputeSet& set, const Body& body) {
  const auto each = [&](const std::vector<Operand>& operands,
                        const std::vector<program::Access>& accesses,
                        bool written) {
    for (size_t k = 0; k < operands.size(); ++k) {
      body(operands[k],
           k < accesses.size() ? int64_t{accesses[k].tensor} : program::kNone,
           written);
    }
  };
  each(set.operands, set.step.operands, false);
  each(set.results, set.step.results, true);
}

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KEPT_ROWS_H_
