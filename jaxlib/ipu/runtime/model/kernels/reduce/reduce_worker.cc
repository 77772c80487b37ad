#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_worker.h"

#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/scratch.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The most elements that are buffered to fold columns.
constexpr int64_t kBlock = 16384;

}  // namespace

ReduceWorker::ReduceWorker(const ReducePlan& plan, const Memory& memory)
    : plan_(plan), memory_(memory) {
  if (!plan_.program) return;
  state_.emplace(*plan_.program, memory);
  static thread_local Scratch scratch;
  const int64_t block = std::max(kBlock, plan_.program->block());
  values_ = scratch.Get<char>(3 * block * 8);
  indices_ = values_ + block * 8;
  long_indices_ = reinterpret_cast<int64_t*>(indices_ + block * 8);
}

void ReduceWorker::Fold(const ReducePart& part, char* totals) {
  if (!plan_.program) {
    FoldDirect(part, totals);
  } else if (plan_.by_rows) {
    FoldRows(part, totals);
  } else {
    FoldColumns(part, totals);
  }
}

// Folds elements in the operand's own memory.
void ReduceWorker::FoldDirect(const ReducePart& part, char* totals) {
  const size_t i = plan_.direct;
  const char* base = plan_.source.Data(memory_);
  const int64_t kept = OperandOffset(plan_.outer.kept, i, part.outer) +
                       part.begin * plan_.x.operands[i];
  const int64_t y_extent = plan_.y.extent, y_step = plan_.y.operands[i];
  for (int64_t r = part.first; r < part.last;) {
    const int64_t y = r % y_extent;
    const int64_t length = std::min(y_extent - y, part.last - r);
    const int64_t at =
        kept + OperandOffset(plan_.outer.reduced, i, r / y_extent) + y * y_step;
    FoldInput input = {.values = base + at * plan_.item_size,
                       .indices = nullptr,
                       .first = r,
                       .step = plan_.by_rows ? plan_.x.operands[i] : y_step,
                       .rows = part.end - part.begin,
                       .columns = length};
    if (plan_.by_rows) {
      plan_.fold->rows(input, totals);
    } else {
      std::swap(input.rows, input.columns);
      plan_.fold->columns(input, totals);
    }
    r += length;
  }
}

// The iteration order is (outer, x, reduced). Evaluates as many whole rows as
// fit in a block, or one row in pieces.
void ReduceWorker::FoldRows(const ReducePart& part, char* totals) {
  const int64_t block = plan_.program->block();
  const int64_t length = part.last - part.first;
  const int64_t most =
      length == plan_.reduced && length > 0 ? block / length : 0;
  for (int64_t x = part.begin; x < part.end;) {
    const int64_t begin = (part.outer * plan_.x.extent + x) * plan_.reduced;
    char* to = totals + (x - part.begin) * plan_.fold->total_size;
    if (most > 1) {
      const int64_t rows = std::min(most, part.end - x);
      plan_.fold->rows(Eval(begin, rows, length, 0), to);
      x += rows;
      continue;
    }
    for (int64_t r = part.first; r < part.last; r += block) {
      const int64_t count = std::min(block, part.last - r);
      plan_.fold->rows(Eval(begin + r, 1, count, r), to);
    }
    ++x;
  }
}

// The iteration order is (outer, reduced, x). Evaluates as many whole rows as
// fit in a block, or the same piece of several rows.
void ReduceWorker::FoldColumns(const ReducePart& part, char* totals) {
  const int64_t width = part.end - part.begin;
  const int64_t piece = std::min(width, kBlock / 16);
  const bool whole = piece == plan_.x.extent;
  for (int64_t r = part.first; r < part.last;) {
    const int64_t rows = std::min(kBlock / piece, part.last - r);
    for (int64_t c = 0; c < width; c += piece) {
      const int64_t begin =
          (part.outer * plan_.reduced + r) * plan_.x.extent + part.begin + c;
      const int64_t columns = std::min(piece, width - c);
      if (whole) {
        EvalInto(begin, rows * columns, 0);
      } else {
        for (int64_t i = 0; i < rows; ++i) {
          EvalInto(begin + i * plan_.x.extent, columns, i * columns);
        }
      }
      char* to = totals + c * plan_.fold->total_size;
      plan_.fold->columns(Input(values_, indices_, rows, columns, r), to);
    }
    r += rows;
  }
}

// Evaluates rows of elements, which stay in the register program's buffers.
FoldInput ReduceWorker::Eval(int64_t begin, int64_t rows, int64_t columns,
                             int64_t first) {
  void* values[2] = {nullptr, nullptr};
  plan_.program->Eval(*state_, begin, rows * columns, values);
  return Input(values[0], values[1], rows, columns, first);
}

// Evaluates elements into this worker's buffers, starting at element `at`.
void ReduceWorker::EvalInto(int64_t begin, int64_t count, int64_t at) {
  const int64_t index_size = plan_.wide_indices ? 8 : 4;
  void* values[2] = {values_ + at * plan_.item_size,
                     indices_ + at * index_size};
  plan_.program->Eval(*state_, begin, count, values);
}

FoldInput ReduceWorker::Input(const void* values, const void* indices,
                              int64_t rows, int64_t columns, int64_t first) {
  return {
      .values = static_cast<const char*>(values),
      .indices = plan_.has_indices ? Indices(indices, rows * columns) : nullptr,
      .first = first,
      .step = columns,
      .rows = rows,
      .columns = columns};
}

const int64_t* ReduceWorker::Indices(const void* from, int64_t n) {
  if (plan_.wide_indices) return static_cast<const int64_t*>(from);
  int64_t* const wide = long_indices_;
  for (int64_t i = 0; i < n; ++i) {
    wide[i] = plan_.signed_indices
                  ? int64_t{static_cast<const int32_t*>(from)[i]}
                  : int64_t{static_cast<const uint32_t*>(from)[i]};
  }
  return wide;
}

}  // namespace ipu::model::IPU_SIMD_NS
