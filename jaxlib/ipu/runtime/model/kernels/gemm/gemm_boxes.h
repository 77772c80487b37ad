// Products whose results lie in short runs in memory; included only by
// gemm_*.cc.
//
// A contraction of tensors such as `aib,bjc->ijac` has rows (a, i) and columns
// (j, c) whose results are interleaved, and one whose result has the batch
// innermost has no two sums of one product next to each other. Such a product
// is computed box by box: a part of each dimension, in dense memory that stays
// in the cache, from where a strided copy moves it to its places.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BOXES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BOXES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

// Elements of a box at most: a part of the second-level cache; a guess.
inline constexpr int64_t kMostInBox = 1 << 16;
// Rows and columns that a box has before it gets longer in the order of the
// result's memory: a guess, a few tiles of either.
inline constexpr int64_t kBoxSide = 128;
// Fewer results are stored as they are: a guess, about the set-up of two boxes.
inline constexpr int64_t kWorthBoxes = 1024;

// The largest divisor of n that is at most `most`, and at least 1.
inline int64_t DivisorUpTo(int64_t n, int64_t most) {
  int64_t d = std::clamp<int64_t>(most, 1, n);
  while (n % d != 0) --d;
  return d;
}

template <typename T>
class BoxedProduct {
 public:
  // Returns null if results are stored as well where they belong.
  static std::shared_ptr<const BoxedProduct> Make(const Product& p,
                                                  DType native) {
    if (p.adds || p.fourier) return nullptr;
    const int64_t m = Extent(p.m), n = Extent(p.n), batch = Extent(p.batch);
    if (m < 2 || n < 2 || m * n * batch < kWorthBoxes || Extent(p.k) == 0) {
      return nullptr;
    }
    const ProductLoops rows = SortedByResult(p.m),
                       columns = SortedByResult(p.n);
    const bool batch_innermost =
        Innermost(p.batch) < std::min(Innermost(p.m), Innermost(p.n));
    if (!batch_innermost && !InShortRuns(rows, columns)) return nullptr;
    return std::make_shared<const BoxedProduct>(p, native);
  }

  BoxedProduct(const Product& p, DType native)
      : BoxedProduct(p, native, Loops(p)) {}

  void Run(const char* lhs, const char* rhs, char* result,
           ThreadPool& threads) const {
    // Multiply-adds, and copies of single elements.
    const double work = static_cast<double>(sums_) * (terms_ + 4);
    const auto grain = static_cast<int64_t>(kWorthThread / work) + 1;
    threads.For(count_, grain, [&](int64_t begin, int64_t end) {
      char* const box = ThreadBuffers().box.Get<char>(copy_.bytes());
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i, l = 0, r = 0, to = 0;
        for (const ProductLoop& loop : outer_) {
          const int64_t at = rest % loop.extent;
          rest /= loop.extent;
          l += at * loop.lhs;
          r += at * loop.rhs;
          to += at * loop.result;
        }
        gemm_.Run(lhs + l, rhs + r, box, threads);
        copy_.Run(box, result + to);
      }
    });
  }

 private:
  enum Side { kBatch, kRows, kColumns };

  struct BoxLoop {
    Side side;
    ProductLoop loop;
    int64_t inner = 1;  // iterations within a box, which divide the extent
    int64_t dense = 0;  // stride of the result in a box
  };

  // Of a loop over rows or columns, in the operand that has them.
  static int64_t OperandStride(const BoxLoop& l) {
    return std::abs(l.side == kRows ? l.loop.lhs : l.loop.rhs);
  }

  static int64_t Innermost(const ProductLoops& loops) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const ProductLoop& l : loops) {
      if (l.extent > 1) least = std::min(least, std::abs(l.result));
    }
    return least;
  }

  // Whether a side's results are contiguous, but in runs of less than a vector.
  static bool InShortRuns(const ProductLoops& rows,
                          const ProductLoops& columns) {
    bool found = false;
    for (const ProductLoops* side : {&rows, &columns}) {
      if (side->back().result != 1) continue;
      int64_t run = 1;
      for (size_t i = side->size(); i-- > 0;) {
        if ((*side)[i].result != run) break;
        run *= (*side)[i].extent;
      }
      if (run >= kLanes<T> || run == Extent(*side)) return false;
      found = true;
    }
    return found;
  }

  // All loops but those over terms, innermost in the result first, with the
  // part of each that is within a box.
  static std::vector<BoxLoop> Loops(const Product& p) {
    std::vector<BoxLoop> loops;
    const std::array<const ProductLoops*, 3> sides = {&p.batch, &p.m, &p.n};
    for (Side side : {kBatch, kRows, kColumns}) {
      for (const ProductLoop& l : *sides[side]) {
        if (l.extent > 1) loops.push_back({side, l});
      }
    }
    std::stable_sort(loops.begin(), loops.end(),
                     [](const BoxLoop& a, const BoxLoop& b) {
                       return std::abs(a.loop.result) < std::abs(b.loop.result);
                     });
    // Batches as far as they are further inside than rows or columns.
    std::array<int64_t, 3> extents = {1, 1, 1};
    int64_t size = 1;
    const auto grow = [&](BoxLoop& l, int64_t most) {
      const int64_t more = DivisorUpTo(l.loop.extent / l.inner, most);
      l.inner *= more;
      extents[l.side] *= more;
      size *= more;
    };
    // What is contiguous in an operand is packed by vectors.
    for (BoxLoop& l : loops) {
      if (l.side != kBatch && OperandStride(l) == 1) grow(l, kLanes<T>);
    }
    bool inside = true;
    for (BoxLoop& l : loops) {
      if (l.side == kBatch && !inside) continue;
      inside = l.side == kBatch && inside;
      const int64_t side = l.side == kBatch ? kLine : kBoxSide;
      grow(l, side / extents[l.side]);
    }
    for (BoxLoop& l : loops) grow(l, kMostInBox / size);

    // The side whose results are contiguous becomes the columns, unless it is
    // short.
    const auto innermost =
        std::find_if(loops.begin(), loops.end(),
                     [](const BoxLoop& l) { return l.side != kBatch; });
    Side columns = innermost->side;
    const Side other = columns == kRows ? kColumns : kRows;
    if (extents[columns] < kTileColumns<T> &&
        extents[other] > extents[columns]) {
      columns = other;
    }
    // Rows are in the order of their operand.
    const Side rows = columns == kRows ? kColumns : kRows;
    std::vector<BoxLoop*> order;
    for (Side side : {columns, rows, kBatch}) {
      const auto from = static_cast<std::ptrdiff_t>(order.size());
      for (BoxLoop& l : loops) {
        if (l.side == side) order.push_back(&l);
      }
      if (side != rows) continue;
      std::stable_sort(order.begin() + from, order.end(),
                       [](const BoxLoop* a, const BoxLoop* b) {
                         return OperandStride(*a) < OperandStride(*b);
                       });
    }
    int64_t stride = 1;
    for (BoxLoop* l : order) {
      l->dense = stride;
      stride *= l->inner;
    }
    return loops;
  }

  BoxedProduct(const Product& p, DType native,
               const std::vector<BoxLoop>& loops)
      : terms_(Extent(p.k)),
        gemm_(Inner(p, loops), native),
        copy_(CopyOf(p.result.item_size, loops)) {
    for (const BoxLoop& l : loops) {
      sums_ *= l.inner;
      const int64_t extent = l.loop.extent / l.inner;
      if (extent == 1) continue;
      count_ *= extent;
      outer_.push_back(
          {.extent = extent,
           .lhs = l.inner * l.loop.lhs * p.lhs.item_size,
           .rhs = l.inner * l.loop.rhs * p.rhs.item_size,
           .result = l.inner * l.loop.result * p.result.item_size});
    }
  }

  static Product Inner(const Product& p, const std::vector<BoxLoop>& loops) {
    Product inner = p;
    const std::array<ProductLoops*, 3> sides = {&inner.batch, &inner.m,
                                                &inner.n};
    for (ProductLoops* side : sides) side->clear();
    for (const BoxLoop& l : loops) {
      if (l.inner == 1) continue;
      sides[l.side]->push_back({.extent = l.inner,
                                .lhs = l.loop.lhs,
                                .rhs = l.loop.rhs,
                                .result = l.dense});
    }
    return inner;
  }

  static StridedCopy CopyOf(int64_t item_size,
                            const std::vector<BoxLoop>& loops) {
    std::vector<int64_t> shape, from, to;
    for (const BoxLoop& l : loops) {
      shape.push_back(l.inner);
      from.push_back(l.dense);
      to.push_back(l.loop.result);
    }
    return StridedCopy(item_size, shape, from, to);
  }

  // Batches in a box, if they are innermost: those whose results fill a line.
  static constexpr int64_t kLine = 16;

  int64_t terms_;
  int64_t sums_ = 1;    // in a box
  int64_t count_ = 1;   // of boxes
  ProductLoops outer_;  // over boxes; strides in bytes
  Gemm<T> gemm_;
  StridedCopy copy_;
};

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BOXES_H_
