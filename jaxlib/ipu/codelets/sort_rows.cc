#include "jaxlib/ipu/codelets/sort_rows.h"

#include <algorithm>

#include "jaxlib/ipu/codelets/sort_together.h"

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
  MergeBatch();
}

void SortKernel::MergeBatch() {
  const auto all = [this](const auto& holds) {
    return std::all_of(from_.begin(), from_.end(), holds) &&
           std::all_of(to_.begin(), to_.end(), holds);
  };
  for (size_t d = batch_.size(); d-- > 1;) {
    const bool merges = all([&](const SortedArray& a) {
      return a.batch_steps[d - 1] == a.batch_steps[d] * batch_[d];
    });
    if (!merges) continue;
    batch_[d - 1] *= batch_[d];
    batch_.erase(batch_.begin() + d);
    for (auto* arrays : {&from_, &to_}) {
      for (SortedArray& a : *arrays) {
        a.batch_steps.erase(a.batch_steps.begin() + d - 1);
      }
    }
  }
}

void SortKernel::Start(const Memory& memory, int64_t r,
                       std::span<SortedRow> rows) const {
  const auto start = [&](const SortedArray& array, const auto& set) {
    char* const begin = array.view.Data(memory);
    const size_t last = batch_.size() - 1;  // adjacent rows differ in it
    const int64_t step = batch_.empty() ? 0 : array.batch_steps[last];
    char* at = begin;
    int64_t left = 0;
    for (size_t k = 0; k < rows.size(); ++k, at += step, --left) {
      if (left == 0) {
        at = begin;
        int64_t rest = r + static_cast<int64_t>(k);
        left = batch_.empty() ? 1 : batch_[last] - rest % batch_[last];
        for (size_t d = batch_.size(); d-- > 0; rest /= batch_[d]) {
          at += rest % batch_[d] * array.batch_steps[d];
        }
      }
      set(rows[k], at);
    }
  };
  for (size_t j = 0; j < from_.size(); ++j) {
    start(from_[j], [j](SortedRow& row, char* at) { row.from[j] = at; });
  }
  for (size_t j = 0; j < to_.size(); ++j) {
    start(to_[j], [j](SortedRow& row, char* at) { row.to[j] = at; });
  }
}

void SortKernel::Run(const Memory& memory, ThreadPool& threads) const {
  const auto sort = [&](int64_t begin, int64_t end, int parts) {
    SortedRow all[kTogether];
    for (int64_t k = 0; k < std::min(kTogether, end - begin); ++k) {
      all[k].from.resize(from_.size());
      all[k].to.resize(to_.size());
    }
    for (; begin < end; begin += kTogether) {
      const int64_t n = std::min(kTogether, end - begin);
      const std::span<SortedRow> rows(all, n);
      Start(memory, begin, rows);
      if (SortsTogether(n)) {
        SortRows(rows);
      } else {
        for (const SortedRow& row : rows) SortRow(row, parts, threads);
      }
    }
  };
  if (rows_ < 2 * threads.threads() && n_ >= 2 * kGrain) {
    return sort(0, rows_, std::min(threads.threads(), kMostParts));
  }
  const int64_t unit = SortsTogether(kTogether) ? kTogether : 1;
  threads.For((rows_ + unit - 1) / unit,
              std::max<int64_t>(1, kGrain / n_ / unit),
              [&](int64_t begin, int64_t end) {
                sort(begin * unit, std::min(end * unit, rows_), 1);
              });
}

}  // namespace ipu::model::IPU_SIMD_NS
