// The base class of sort kernels: iterates over the rows to sort.

#ifndef JAXLIB_IPU_CODELETS_SORT_ROWS_H_
#define JAXLIB_IPU_CODELETS_SORT_ROWS_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "jaxlib/ipu/codelets/radix_sort.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"

namespace ipu::model::IPU_SIMD_NS {

// An operand or result as rows along the sorted dimension.
struct SortedArray {
  View view;
  int64_t item_size;
  int64_t step;                      // bytes, along the row
  std::vector<int64_t> batch_steps;  // bytes, along the other dimensions
};

// One row of every operand and every result.
struct SortedRow {
  std::vector<const char*> from;
  std::vector<char*> to;
};

class SortKernel : public Kernel {
 public:
  void Run(const Memory& memory, ThreadPool& threads) const override;

 protected:
  SortKernel(const ComputeSet& set, int64_t keep);

  // Sorts one row with `parts` threads.
  virtual void SortRow(const SortedRow& row, int parts,
                       ThreadPool& threads) const = 0;

  // Whether so many rows, up to kTogether, are sorted by one call of SortRows.
  virtual bool SortsTogether(int64_t /*rows*/) const { return false; }
  virtual void SortRows(std::span<const SortedRow> /*rows*/) const {}

  // Sets element i < keep of each result to element index(i) of its operand,
  // and of a result without an operand to index(i).
  template <typename Index>
  void Deliver(const SortedRow& row, const Index& index, int parts,
               ThreadPool& threads) const {
    ForParts(parts, threads, [&](int64_t part) {
      for (size_t j = 0; j < to_.size(); ++j) {
        DeliverResult(row, j, index, keep_ * part / parts,
                      keep_ * (part + 1) / parts);
      }
    });
  }

  // The same for elements [begin, end) of result j.
  template <typename Index>
  void DeliverResult(const SortedRow& row, size_t j, const Index& index,
                     int64_t begin, int64_t end) const {
    char* const to = row.to[j];
    const int64_t to_step = to_[j].step;
    WithItem(to_[j].item_size, [&]<typename Item>(Item item) {
      if (j == from_.size()) {
        for (int64_t i = begin; i < end; ++i) {
          item = static_cast<Item>(index(i));
          std::memcpy(to + i * to_step, &item, sizeof item);
        }
        return;
      }
      const char* const from = row.from[j];
      const int64_t step = from_[j].step;
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(&item, from + index(i) * step, sizeof item);
        std::memcpy(to + i * to_step, &item, sizeof item);
      }
    });
  }

  int64_t n_;     // elements in a row
  int64_t keep_;  // elements in a row of a result
  std::vector<SortedArray> from_;
  std::vector<SortedArray> to_;

 private:
  // Merges dimensions of the batch that are one in all arrays.
  void MergeBatch();
  // Sets where row r and those after it begin.
  void Start(const Memory& memory, int64_t r, std::span<SortedRow> rows) const;

  std::vector<int64_t> batch_;
  int64_t rows_ = 1;
};

// The kernel of a sort without keys, which compares by a register program.
KernelOr MakeComparisonSort(const ComputeSet& set, const program::Sort& fields);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_SORT_ROWS_H_
