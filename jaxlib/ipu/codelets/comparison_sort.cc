// A stable merge sort with a register program as its comparison. Many pairs of
// runs are merged in lockstep, so that each call of the program compares many
// elements.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "jaxlib/ipu/codelets/sort_rows.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class ComparisonSort : public SortKernel {
 public:
  ComparisonSort(const ComputeSet& set, int64_t keep, RegisterProgram less)
      : SortKernel(set, keep), less_(std::move(less)) {}

  void SortRow(const SortedRow& row, int parts,
               ThreadPool& threads) const override;

 private:
  class Merger;
  const RegisterProgram less_;
};

// Sorts the elements of one row.
class ComparisonSort::Merger {
 public:
  Merger(const ComparisonSort& sort, const SortedRow& row)
      : sort_(sort), state_(sort.less_) {
    std::vector<char> dense(sort.n_ * 8);
    for (size_t j = 0; j < sort.from_.size(); ++j) {
      const SortedArray& array = sort.from_[j];
      const int64_t size = array.item_size;
      for (int64_t i = 0; i < sort.n_; ++i) {
        std::memcpy(&dense[i * size], row.from[j] + i * array.step, size);
      }
      const ConvertFn load = FindLoad(array.view.dtype);
      // Registers have 4 or 8 bytes; elements have as many or fewer.
      Column column{std::vector<char>(sort.n_ * 8), size == 8 ? 8 : 4, {}, {}};
      if (load != nullptr) {
        load(dense.data(), column.values.data(), sort.n_);
      } else {
        std::memcpy(column.values.data(), dense.data(), sort.n_ * size);
      }
      column.left.resize(kLanes * 8);
      column.right.resize(kLanes * 8);
      columns_.push_back(std::move(column));
    }
  }

  // Returns the elements' indices in sorted order.
  std::vector<uint32_t> Sort() {
    const int64_t n = sort_.n_;
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint32_t> merged(n);
    for (int64_t width = 1; width < n; width *= 2) {
      const int64_t pairs = (n + 2 * width - 1) / (2 * width);
      for (int64_t pair = 0; pair < pairs; pair += kLanes) {
        Merge(order.data(), merged.data(), width, pair,
              std::min(pairs, pair + kLanes));
      }
      std::swap(order, merged);
    }
    return order;
  }

 private:
  static constexpr int64_t kLanes = 256;

  struct Column {
    std::vector<char> values;  // as register values
    int64_t size;
    std::vector<char> left;
    std::vector<char> right;
  };
  // Two adjacent runs that are being merged, and the destination.
  struct Lane {
    int64_t left, left_end;
    int64_t right, right_end;
    int64_t to;
  };

  // Merges pairs [begin, end) of runs of `width` elements.
  void Merge(const uint32_t* from, uint32_t* to, int64_t width, int64_t begin,
             int64_t end) {
    const int64_t n = sort_.n_;
    lanes_.clear();
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t left = 2 * width * pair;
      const int64_t middle = std::min(n, left + width);
      lanes_.push_back(
          {left, middle, middle, std::min(n, middle + width), left});
    }
    while (!lanes_.empty()) {
      // The rest of one run needs no comparisons.
      std::erase_if(lanes_, [&](const Lane& lane) {
        if (lane.left < lane.left_end && lane.right < lane.right_end) {
          return false;
        }
        uint32_t* rest =
            std::copy(from + lane.left, from + lane.left_end, to + lane.to);
        std::copy(from + lane.right, from + lane.right_end, rest);
        return true;
      });
      Compare(from);
      for (size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        // Stable: the right element goes first only if it is less.
        to[lane.to++] = from[smaller_[i] != 0 ? lane.right++ : lane.left++];
      }
    }
  }

  // smaller_[i] = whether lane i's next right element is less than its left
  // one.
  void Compare(const uint32_t* order) {
    std::vector<const void*>& operands = operands_;
    operands.clear();
    for (Column& column : columns_) {
      for (size_t i = 0; i < lanes_.size(); ++i) {
        const int64_t size = column.size;
        std::memcpy(&column.left[i * size],
                    &column.values[order[lanes_[i].left] * size], size);
        std::memcpy(&column.right[i * size],
                    &column.values[order[lanes_[i].right] * size], size);
      }
      operands.push_back(column.right.data());
      operands.push_back(column.left.data());
    }
    void* const results[] = {smaller_};
    sort_.less_.Call(state_, operands.data(), results,
                     static_cast<int64_t>(lanes_.size()));
  }

  const ComparisonSort& sort_;
  RegisterProgram::State state_;
  std::vector<Column> columns_;
  std::vector<Lane> lanes_;
  std::vector<const void*> operands_;
  uint32_t smaller_[kLanes];
};

void ComparisonSort::SortRow(const SortedRow& row, int parts,
                             ThreadPool& threads) const {
  const std::vector<uint32_t> order = Merger(*this, row).Sort();
  Deliver(
      row, [&](int64_t i) { return static_cast<int64_t>(order[i]); }, parts,
      threads);
}

}  // namespace

KernelOr MakeComparisonSort(const ComputeSet& set,
                            const program::Sort& fields) {
  StatusOr<RegisterProgram> less = RegisterProgram::MakeFunction(
      fields.compare, {fields.compare_output}, 2 * set.operands.size());
  if (!less.ok()) return less.status();
  if (less->output_type(0) != program::RegisterType::kU32) {
    return InvalidArgument(
        "sort: its comparison does not return a truth value");
  }
  return KernelOr(
      std::make_unique<ComparisonSort>(set, fields.keep, std::move(*less)));
}

}  // namespace ipu::model::IPU_SIMD_NS
