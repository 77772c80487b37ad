// The axes of a product's matrices: map an index to an offset in elements.
//
// A row index may enumerate several dimensions of the iteration space, and the
// rows may overlap: the rows of a convolution's left operand are its windows.
// The offset of an element is still the sum of the offsets of its row and its
// column.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_AXIS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_AXIS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ipu::model::IPU_SIMD_NS {

// Indices [begin, end) of an axis.
struct IndexRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// One dimension of the iteration space, as one matrix sees it.
struct Loop {
  int64_t extent;
  int64_t stride;  // elements
};

// A sequence of offsets, stored as runs of evenly spaced ones.
class Axis {
 public:
  Axis() = default;
  // Loops are outermost first. An axis with one index gets stride 1, which most
  // fast paths accept.
  explicit Axis(const std::vector<Loop>& loops);

  // Whether all indices form a single run.
  bool even() const { return starts_.empty(); }
  // Whether these are next to each other in memory.
  bool dense() const { return even() && stride_ == 1; }
  // Elements between consecutive indices of a run.
  int64_t stride() const { return stride_; }
  // The number of indices in a run.
  int64_t run() const { return run_; }

  int64_t At(int64_t i) const {
    if (even()) return i * stride_;
    return starts_[i / run_] + i % run_ * stride_;
  }

  // Calls body(offset, first, count) for each run in a range: `count` indices
  // starting at `range.begin + first`.
  template <typename Body>
  void ForRuns(IndexRange range, const Body& body) const {
    if (even()) return body(range.begin * stride_, int64_t{0}, range.size());
    for (int64_t i = range.begin; i < range.end;) {
      const int64_t count = std::min(range.end - i, run_ - i % run_);
      body(At(i), i - range.begin, count);
      i += count;
    }
  }

  // The first indices of a range, as far as they are within one run.
  IndexRange RunOf(IndexRange range) const {
    if (even()) return range;
    const int64_t rest = run_ - range.begin % run_;
    return {range.begin, std::min(range.end, range.begin + rest)};
  }

  // Whether a whole range is within one run.
  bool InOneRun(IndexRange range) const {
    return even() || range.begin / run_ == (range.end - 1) / run_;
  }

 private:
  int64_t run_ = 1;
  int64_t stride_ = 1;
  std::vector<int64_t> starts_;  // of each run; empty if there is only one
};

inline Axis::Axis(const std::vector<Loop>& loops) {
  std::vector<Loop> joined;
  for (const Loop& loop : loops) {
    if (loop.extent == 1) continue;
    if (!joined.empty() && joined.back().stride == loop.stride * loop.extent) {
      joined.back() = {joined.back().extent * loop.extent, loop.stride};
    } else {
      joined.push_back(loop);
    }
  }
  if (joined.empty()) return;
  run_ = joined.back().extent;
  stride_ = joined.back().stride;
  joined.pop_back();
  if (joined.empty()) return;
  starts_ = {0};
  for (const Loop& loop : joined) {
    std::vector<int64_t> starts;
    starts.reserve(starts_.size() * loop.extent);
    for (int64_t start : starts_) {
      for (int64_t i = 0; i < loop.extent; ++i) {
        starts.push_back(start + i * loop.stride);
      }
    }
    starts_ = std::move(starts);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_AXIS_H_
