// Reductions; `Reduce` in jaxlib/ipu/program/schema.py.

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/general_reduce.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce_space.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::ReduceKind;
using program::RegisterType;

// A loop is worth dividing among threads when it takes about this long.
constexpr double kWorthNanoseconds = 8000;

// Whether values of a register type can become elements of a type.
bool Stores(RegisterType type, uint8_t dtype) {
  switch (type) {
    case RegisterType::kF32:
      return StoreRunOf<float>(dtype) != nullptr;
    case RegisterType::kF64:
      return StoreRunOf<double>(dtype) != nullptr;
    case RegisterType::kI32:
    case RegisterType::kU32:
      return StoreRunOf<uint32_t>(dtype) != nullptr;
    case RegisterType::kI64:
    case RegisterType::kU64:
      return StoreRunOf<uint64_t>(dtype) != nullptr;
  }
  return false;
}

const Fold* FindFold(RegisterType type, ReduceKind kind) {
  switch (type) {
    case RegisterType::kF32:
      return FoldOf<float>(kind);
    case RegisterType::kF64:
      return FoldOf<double>(kind);
    case RegisterType::kI32:
      return FoldOf<int32_t>(kind);
    case RegisterType::kU32:
      return FoldOf<uint32_t>(kind);
    case RegisterType::kI64:
      return FoldOf<int64_t>(kind);
    case RegisterType::kU64:
      return FoldOf<uint64_t>(kind);
  }
  return nullptr;
}

int64_t ItemSize(RegisterType type) {
  switch (type) {
    case RegisterType::kF64:
    case RegisterType::kI64:
    case RegisterType::kU64:
      return 8;
    default:
      return 4;
  }
}

// Recognises the register programs `LOAD k` of a 16-bit float and `LOAD k`,
// `MUL`, for which there are folds; k goes to `*operand`.
void FindReadingFold(const ComputeSet& set, const program::Reduce& fields,
                     int* operand, const Fold** fold) {
  struct Instruction {
    program::Opcode op;
    RegisterType type;
    uint16_t a, b, c;
    uint64_t imm;
  } code[2];
  static_assert(sizeof code[0] == 16);
  const size_t count = fields.code.size() / sizeof(Instruction);
  if (fields.code.size() % sizeof(Instruction) != 0 || count < 1 || count > 2) {
    return;
  }
  std::memcpy(code, fields.code.data(), fields.code.size());
  if (code[0].op != program::Opcode::kLoad ||
      code[0].imm >= set.operands.size() || fields.outputs[0] != count - 1) {
    return;
  }
  const uint8_t dtype = set.operands[code[0].imm].view.dtype;
  const auto kind = static_cast<ReduceKind>(fields.kind);
  const Fold* found = nullptr;
  if (count == 1 && code[0].type == RegisterType::kF32) {
    found = FoldOfHalves(dtype, kind);
  } else if (count == 2 && code[1].op == program::Opcode::kMul &&
             code[1].a == 0 && code[1].b == 0 &&
             code[0].type == (dtype == program::kF64 ? RegisterType::kF64
                                                     : RegisterType::kF32)) {
    found = FoldOfSquares(dtype, kind);
  }
  if (found == nullptr) return;
  *fold = found;
  *operand = static_cast<int>(code[0].imm);
}

// No dimension of the iteration space.
constexpr size_t kNone = static_cast<size_t>(-1);

// The last axis of a group, taken off it; a group without axes has one of one
// element.
ReduceAxis TakeLast(std::vector<ReduceAxis>& axes, const ComputeSet& set) {
  if (axes.empty()) {
    return {.extent = 1,
            .operands = std::vector<int64_t>(set.operands.size(), 1),
            .results = std::vector<int64_t>(set.results.size(), 1),
            .dimension = kNone};
  }
  ReduceAxis last = std::move(axes.back());
  axes.pop_back();
  return last;
}

// The totals of the kept points [begin, end) along x, for one index of the
// outer kept axes and the reduced points [first, last).
struct Part {
  int64_t outer;
  int64_t begin, end;
  int64_t first, last;
};

// A reduction's two innermost axes are x, kept, and y, reduced. Elements that
// lie side by side along y are folded as rows, else as columns.
class ReduceKernel final : public Kernel {
 public:
  static KernelOr Make(const ComputeSet& set, const program::Reduce& fields);

  void Run(const Memory& memory, ThreadPool& threads) const override;

 private:
  class Worker;

  void Start(int64_t n, char* totals) const;
  void Finish(const char* totals, const Part& part, const Memory& memory) const;

  const Fold* fold_ = nullptr;
  int64_t item_size_ = 0;
  ReduceSpace outer_;  // without x and y
  ReduceAxis x_, y_;
  bool by_rows_ = false;
  int64_t reduced_ = 1;     // reduced points for one kept one
  double nanoseconds_ = 0;  // per element
  // Reads the elements; none if they are read where operand `direct_` is.
  std::optional<RegisterProgram> program_;
  size_t direct_ = 0;
  View source_;
  bool wide_indices_ = false;  // explicit indices are 64 bits wide
  bool signed_indices_ = false;
  std::vector<View> results_;
  std::string init_;  // ARGMAX, ARGMIN: a total, if there are no elements
};

KernelOr ReduceKernel::Make(const ComputeSet& set,
                            const program::Reduce& fields) {
  const auto kind = static_cast<ReduceKind>(fields.kind);
  const bool arg = kind == ReduceKind::kArgmax || kind == ReduceKind::kArgmin;
  // Made once to see what it reads, and again in the order of the memory.
  auto plain = RegisterProgram::Make(fields.code, fields.outputs, set.shape,
                                     set.operands);
  if (!plain.ok()) return plain.status();
  if (set.results.size() != (arg ? 2 : 1) || plain->num_outputs() == 0 ||
      plain->num_outputs() > set.results.size()) {
    return InvalidArgument("Reduce has " +
                           std::to_string(plain->num_outputs()) +
                           " values for " + std::to_string(set.results.size()) +
                           " results, which its kind does not allow.");
  }
  const RegisterType type = plain->output_type(0);
  auto kernel = std::make_unique<ReduceKernel>();
  kernel->fold_ = FindFold(type, kind);
  if (kernel->fold_ == nullptr) {
    return InvalidArgument("Reduce of kind " + std::to_string(fields.kind) +
                           " has no meaning for register type " +
                           std::to_string(static_cast<int>(type)) + ".");
  }
  if (!Stores(type, set.results[0].view.dtype) ||
      (arg && !Stores(RegisterType::kU64, set.results[1].view.dtype))) {
    return InvalidArgument(
        "Reduce's values cannot be stored as elements of its results' types.");
  }
  kernel->item_size_ = ItemSize(type);
  if (arg && fields.init.size() == 16) kernel->init_ = fields.init;
  for (const Operand& result : set.results) {
    kernel->results_.push_back(result.view);
  }

  const bool implied = plain->num_outputs() == 1;
  int loaded = implied ? plain->LoadedOperand(0) : -1;
  const Fold* reading = kernel->fold_;  // as one that reads the operand itself
  if (loaded < 0 && implied) FindReadingFold(set, fields, &loaded, &reading);
  const size_t primary = loaded >= 0 ? loaded : LargestOperand(set);
  ReduceSpace space =
      MakeReduceSpace(set, fields.num_reduced, fields.code, primary, arg);
  kernel->reduced_ = space.reduced_size();
  std::vector<ReduceAxis> order = space.kept;
  ReduceAxis x = TakeLast(space.kept, set), y = TakeLast(space.reduced, set);
  const auto step = [&](const ReduceAxis& axis) {
    const int64_t stride =
        axis.extent == 1 || set.operands.empty() ? 0 : axis.operands[primary];
    return stride == 0 ? std::numeric_limits<int64_t>::max() : std::abs(stride);
  };
  kernel->by_rows_ = step(y) <= step(x);
  // Now the walk: rows end with all reduced axes, columns with x.
  if (!kernel->by_rows_) order = space.kept;
  order.insert(order.end(), space.reduced.begin(), space.reduced.end());
  if (y.dimension != kNone) order.push_back(y);
  if (!kernel->by_rows_ && x.dimension != kNone) order.push_back(x);

  const ReduceAxis& inner = kernel->by_rows_ ? y : x;
  if (loaded >= 0 && (inner.extent == 1 || inner.operands[primary] == 1)) {
    kernel->direct_ = primary;
    kernel->source_ = set.operands[primary].view;
    kernel->fold_ = reading;
    kernel->item_size_ = kernel->source_.item_size;
    kernel->nanoseconds_ = 0.03 * kernel->item_size_;
  } else {
    auto program = MakeReduceProgram(set, order, fields.code, fields.outputs);
    if (!program.ok()) return program.status();
    kernel->nanoseconds_ = program->nanoseconds() + 0.1;
    kernel->program_.emplace(std::move(*program));
    if (!implied) {
      const RegisterType index = kernel->program_->output_type(1);
      kernel->wide_indices_ = ItemSize(index) == 8;
      kernel->signed_indices_ = index == RegisterType::kI32;
      if (index == RegisterType::kF32 || index == RegisterType::kF64) {
        return InvalidArgument("Reduce's indices must be integers.");
      }
    }
  }
  kernel->x_ = std::move(x);
  kernel->y_ = std::move(y);
  kernel->outer_ = std::move(space);
  return KernelOr(std::move(kernel));
}

// What one thread needs to fold parts.
class ReduceKernel::Worker {
 public:
  Worker(const ReduceKernel& kernel, const Memory& memory)
      : k_(kernel), memory_(memory), buffers_() {
    if (!k_.program_) return;
    state_.emplace(*k_.program_, memory);
    static thread_local Scratch scratch;
    const int64_t block = std::max(kBlock, k_.program_->block());
    char* memory_of_buffers = scratch.Get<char>(3 * block * 8);
    for (int i = 0; i < 3; ++i) buffers_[i] = memory_of_buffers + i * block * 8;
  }

  void Fold(const Part& part, char* totals) {
    if (!k_.program_) {
      FoldDirect(part, totals);
    } else if (k_.by_rows_) {
      FoldRows(part, totals);
    } else {
      FoldColumns(part, totals);
    }
  }

 private:
  // Elements that columns are folded from at once.
  static constexpr int64_t kBlock = 16384;

  // Reads the operand itself.
  void FoldDirect(const Part& part, char* totals) {
    const size_t i = k_.direct_;
    const char* base = k_.source_.Data(memory_);
    const int64_t kept = OperandOffset(k_.outer_.kept, i, part.outer) +
                         part.begin * k_.x_.operands[i];
    const int64_t y_extent = k_.y_.extent, y_step = k_.y_.operands[i];
    for (int64_t r = part.first; r < part.last;) {
      const int64_t y = r % y_extent;
      const int64_t length = std::min(y_extent - y, part.last - r);
      const int64_t at =
          kept + OperandOffset(k_.outer_.reduced, i, r / y_extent) + y * y_step;
      FoldInput input = {.values = base + at * k_.item_size_,
                         .indices = nullptr,
                         .first = r,
                         .step = k_.by_rows_ ? k_.x_.operands[i] : y_step,
                         .rows = part.end - part.begin,
                         .columns = length};
      if (k_.by_rows_) {
        k_.fold_->rows(input, totals);
      } else {
        std::swap(input.rows, input.columns);
        k_.fold_->columns(input, totals);
      }
      r += length;
    }
  }

  // The walk is (outer, x, reduced): as many whole rows as fit in a block, or
  // a row in pieces.
  void FoldRows(const Part& part, char* totals) {
    const int64_t block = k_.program_->block();
    const int64_t length = part.last - part.first;
    const int64_t most =
        length == k_.reduced_ && length > 0 ? block / length : 0;
    for (int64_t x = part.begin; x < part.end;) {
      const int64_t begin = (part.outer * k_.x_.extent + x) * k_.reduced_;
      char* to = totals + (x - part.begin) * k_.fold_->total_size;
      if (most > 1) {
        const int64_t rows = std::min(most, part.end - x);
        k_.fold_->rows(Eval(begin, rows, length, 0), to);
        x += rows;
        continue;
      }
      for (int64_t r = part.first; r < part.last; r += block) {
        const int64_t count = std::min(block, part.last - r);
        k_.fold_->rows(Eval(begin + r, 1, count, r), to);
      }
      ++x;
    }
  }

  // The walk is (outer, reduced, x): as many whole rows as fit in a block, or
  // the same piece of several rows.
  void FoldColumns(const Part& part, char* totals) {
    const int64_t width = part.end - part.begin;
    const int64_t piece = std::min(width, kBlock / 16);
    const bool whole = piece == k_.x_.extent;
    for (int64_t r = part.first; r < part.last;) {
      const int64_t rows = std::min(kBlock / piece, part.last - r);
      for (int64_t c = 0; c < width; c += piece) {
        const int64_t begin =
            (part.outer * k_.reduced_ + r) * k_.x_.extent + part.begin + c;
        const int64_t columns = std::min(piece, width - c);
        if (whole) {
          EvalInto(begin, rows * columns, 0);
        } else {
          for (int64_t i = 0; i < rows; ++i) {
            EvalInto(begin + i * k_.x_.extent, columns, i * columns);
          }
        }
        char* to = totals + c * k_.fold_->total_size;
        k_.fold_->columns(Input(Buffer(0), Buffer(1), rows, columns, r), to);
      }
      r += rows;
    }
  }

  // Rows of elements wherever Eval leaves them.
  FoldInput Eval(int64_t begin, int64_t rows, int64_t columns, int64_t first) {
    void* values[2] = {nullptr, nullptr};
    k_.program_->Eval(*state_, begin, rows * columns, values);
    return Input(values[0], values[1], rows, columns, first);
  }

  // Elements to place `at` of the buffers.
  void EvalInto(int64_t begin, int64_t count, int64_t at) {
    const int64_t index_size = k_.wide_indices_ ? 8 : 4;
    void* values[2] = {Buffer(0) + at * k_.item_size_,
                       Buffer(1) + at * index_size};
    k_.program_->Eval(*state_, begin, count, values);
  }

  FoldInput Input(const void* values, const void* indices, int64_t rows,
                  int64_t columns, int64_t first) {
    return {.values = static_cast<const char*>(values),
            .indices = k_.program_->num_outputs() == 1
                           ? nullptr
                           : Indices(indices, rows * columns),
            .first = first,
            .step = columns,
            .rows = rows,
            .columns = columns};
  }

  char* Buffer(int i) { return buffers_[i]; }

  const int64_t* Indices(const void* from, int64_t n) {
    if (k_.wide_indices_) return static_cast<const int64_t*>(from);
    int64_t* wide = reinterpret_cast<int64_t*>(Buffer(2));
    for (int64_t i = 0; i < n; ++i) {
      wide[i] = k_.signed_indices_
                    ? int64_t{static_cast<const int32_t*>(from)[i]}
                    : int64_t{static_cast<const uint32_t*>(from)[i]};
    }
    return wide;
  }

  const ReduceKernel& k_;
  const Memory& memory_;
  std::optional<RegisterProgram::State> state_;
  char* buffers_[3];  // values, indices, indices of 64 bits
};

void ReduceKernel::Start(int64_t n, char* totals) const {
  fold_->start(n, totals);
  if (reduced_ != 0 || init_.empty()) return;
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(totals + i * init_.size(), init_.data(), init_.size());
  }
}

void ReduceKernel::Finish(const char* totals, const Part& part,
                          const Memory& memory) const {
  FoldOutput outputs[2];
  for (size_t j = 0; j < results_.size(); ++j) {
    const int64_t stride = x_.results[j];
    const int64_t at =
        ResultOffset(outer_.kept, j, part.outer) + part.begin * stride;
    outputs[j] = {.data = results_[j].Data(memory) + at * results_[j].item_size,
                  .stride = stride,
                  .dtype = results_[j].dtype};
  }
  fold_->finish(totals, part.end - part.begin, outputs);
}

void ReduceKernel::Run(const Memory& memory, ThreadPool& threads) const {
  constexpr int64_t kMostX = 1024, kUnit = 16;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t outer = outer_.kept_size(), kept = outer * x_.extent;
  if (kept == 0) return;
  const double work = nanoseconds_ * kept * reduced_;
  const int64_t wanted =
      threads.threads() == 1
          ? 1
          : std::min(4.0 * threads.threads(), work / kWorthNanoseconds + 1);

  // Pieces of x: few enough elements to stay in the cache, then small enough
  // for all threads to have some.
  int64_t block = std::min(x_.extent, kMostX);
  if (by_rows_) {
    block = std::clamp<int64_t>((1 << 16) / (reduced_ + 1), kUnit, kMostX);
  }
  const int64_t least = by_rows_ ? (reduced_ < 2048 ? kUnit : 1) : 16 * kUnit;
  const int64_t fair = ceil_div(kept, wanted);
  if (fair < block) {
    block = std::max(least, ceil_div(fair, kUnit) * kUnit);
    if (least == 1) block = std::max(fair, least);
  }
  const int64_t blocks = ceil_div(x_.extent, block);
  const int64_t pieces = outer * blocks;
  const auto part_of = [&](int64_t piece) {
    const int64_t begin = piece % blocks * block;
    return Part{.outer = piece / blocks,
                .begin = begin,
                .end = std::min(x_.extent, begin + block),
                .first = 0,
                .last = reduced_};
  };
  if (pieces * 2 > wanted || reduced_ < 2) {
    const double grain = kWorthNanoseconds * pieces / (work + 1);
    threads.For(pieces, std::max<int64_t>(1, std::min<double>(grain, pieces)),
                [&](int64_t begin, int64_t end) {
                  Worker worker(*this, memory);
                  alignas(64) char totals[kMostX * kMostTotalSize];
                  for (int64_t i = begin; i < end; ++i) {
                    const Part part = part_of(i);
                    Start(part.end - part.begin, totals);
                    worker.Fold(part, totals);
                    Finish(totals, part, memory);
                  }
                });
    return;
  }
  // Few totals of many elements: the reduced points are divided.
  const int64_t parts = std::min(ceil_div(wanted, pieces), reduced_);
  static thread_local Scratch partial;
  char* totals = partial.Get<char>(parts * kept * fold_->total_size);
  const auto totals_of = [&](int64_t part, int64_t kept_point) {
    return totals + (part * kept + kept_point) * fold_->total_size;
  };
  threads.For(pieces * parts, 1, [&](int64_t begin, int64_t end) {
    Worker worker(*this, memory);
    for (int64_t i = begin; i < end; ++i) {
      Part part = part_of(i / parts);
      const int64_t n = i % parts;
      part.first = reduced_ * n / parts;
      part.last = reduced_ * (n + 1) / parts;
      char* to = totals_of(n, part.outer * x_.extent + part.begin);
      fold_->start(part.end - part.begin, to);
      worker.Fold(part, to);
    }
  });
  for (int64_t n = 1; n < parts; ++n) {
    fold_->merge(totals_of(n, 0), kept, totals_of(0, 0));
  }
  for (int64_t i = 0; i < pieces; ++i) {
    const Part part = part_of(i);
    Finish(totals_of(0, part.outer * x_.extent + part.begin), part, memory);
  }
}

}  // namespace

KernelOr MakeReduce(const ComputeSet& set, const program::Reduce& fields) {
  if (fields.num_reduced > set.shape.size()) {
    return InvalidArgument("Reduce reduces " +
                           std::to_string(fields.num_reduced) + " of " +
                           std::to_string(set.shape.size()) + " dimensions.");
  }
  if (static_cast<ReduceKind>(fields.kind) == ReduceKind::kGeneral) {
    return MakeGeneralReduce(set, fields);
  }
  return ReduceKernel::Make(set, fields);
}

}  // namespace ipu::model::IPU_SIMD_NS
