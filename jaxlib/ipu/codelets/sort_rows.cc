#include "jaxlib/ipu/codelets/sort_rows.h"

#include <algorithm>

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The fewest elements that justify another thread.
constexpr int64_t kGrain = 16 << 10;

SortedArray MakeArray(const Operand& operand, int64_t step) {
  const int64_t size = operand.view.item_size;
  SortedArray array{operand.view, size, step * size, {}};
  for (size_t d = 0; d + 1 < operand.dims.size(); ++d) {
    array.batch_steps.push_back(operand.Stride(d) * size);
  }
  return array;
}

}  // namespace

SortKernel::SortKernel(const ComputeSet& set, int64_t keep)
    : n_(set.shape.back()),
      keep_(keep),
      batch_(set.shape.begin(), set.shape.end() - 1) {
  for (const Operand& operand : set.operands) {
    from_.push_back(MakeArray(operand, operand.Stride(batch_.size())));
  }
  for (const Operand& result : set.results) {
    to_.push_back(MakeArray(result, result.view.strides.back()));
  }
  for (int64_t extent : batch_) rows_ *= extent;
}

void SortKernel::Run(const Memory& memory, ThreadPool& threads) const {
  const auto sort = [&](int64_t begin, int64_t end, int parts) {
    SortedRow row;
    row.from.resize(from_.size());
    row.to.resize(to_.size());
    for (int64_t r = begin; r < end; ++r) {
      const auto start = [&](const SortedArray& array) {
        char* at = array.view.Data(memory);
        int64_t rest = r;
        for (size_t d = batch_.size(); d-- > 0;) {
          at += rest % batch_[d] * array.batch_steps[d];
          rest /= batch_[d];
        }
        return at;
      };
      std::transform(from_.begin(), from_.end(), row.from.begin(), start);
      std::transform(to_.begin(), to_.end(), row.to.begin(), start);
      SortRow(row, parts, threads);
    }
  };
  if (rows_ < 2 * threads.threads() && n_ >= 2 * kGrain) {
    return sort(0, rows_, std::min(threads.threads(), kMostParts));
  }
  threads.For(rows_, std::max<int64_t>(1, kGrain / n_),
              [&](int64_t begin, int64_t end) { sort(begin, end, 1); });
}

}  // namespace ipu::model::IPU_SIMD_NS
