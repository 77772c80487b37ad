#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_plan.h"

#include <cstdlib>
#include <limits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/register_types.h"
#include "jaxlib/ipu/runtime/support/dtype.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Fewer columns than this are gathered into rows. Measured: crosses at 2
// columns of 16 rows (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kFewColumns, 8);
// The most rows of which that is done. Measured: crosses at 16 to 72 rows of 4
// columns (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kFewReduced, 64);
// Longer rows of windows pay for the overhead of a fold of columns, which reads
// each operand row once. Measured for 32 rows: crosses at 340 columns (AVX-512,
// one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kLongWindows, 512);
// Windows of up to so many elements are faster at any length: they read all
// rows side by side. Measured: crosses at 8 rows of 2^19 columns; of 2, it
// takes a third of the time (AVX-512, one core), `python -m benchmarks
// --thresholds`.
IPU_THRESHOLD(int64_t, kFewPlaces, 9);

using program::Instruction;
using program::Opcode;
using program::ReduceKind;
using program::RegisterType;

// Whether values of a register type can be stored as elements of a type.
bool Stores(RegisterType type, DType dtype) {
  return WithRegister(type, [dtype]<typename T>(T) {
    return StoreRunOf<RunOf<T>>(dtype) != nullptr;
  });
}

const Fold* FindFold(RegisterType type, ReduceKind kind) {
  return WithRegister(type, [kind]<typename T>(T) { return FoldOf<T>(kind); });
}

// A fold that loads its operand directly.
struct DirectFold {
  const Fold* fold = nullptr;
  size_t operand = 0;
};

// Recognises register programs that need not be run: `LOAD k` of an element
// type that is also a register type, `LOAD k` of a 16-bit float, and the square
// `LOAD k`, `MUL`. Returns no fold for any other program.
DirectFold FindDirectFold(const program::RegisterCode& code,
                          const ComputeSet& set, ReduceKind kind) {
  if (code.outputs.size() != 1) return {};
  const Instruction& last = code.code[code.outputs[0]];
  const bool square = last.op == Opcode::kMul && code.outputs[0] == 1 &&
                      code.code.size() == 2 && last.values[0] == 0 &&
                      last.values[1] == 0;
  const Instruction& load = square ? code.code[0] : last;
  if (load.op != Opcode::kLoad) return {};
  const DType dtype = set.operands[load.imm].view.dtype;
  if (program::RegisterTypeOf(dtype) != load.type) return {};
  const Fold* fold = square                       ? FoldOfSquares(dtype, kind)
                     : FindLoad(dtype) == nullptr ? FindFold(load.type, kind)
                                                  : FoldOfHalves(dtype, kind);
  return {fold, load.imm};
}

// Stands for an axis that is not in the iteration space.
constexpr size_t kNone = static_cast<size_t>(-1);

// Removes and returns the last axis of a group, or returns an axis of extent 1
// if the group is empty.
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

// The register program evaluates consecutive rows of the whole space, so outer
// parallel axes can be merged into x wherever the results' strides allow it.
void JoinKept(std::vector<ReduceAxis>& kept, ReduceAxis& x) {
  const auto continues = [&](const ReduceAxis& outer) {
    for (size_t j = 0; j < x.results.size(); ++j) {
      if (outer.results[j] != x.results[j] * x.extent) return false;
    }
    return true;
  };
  while (!kept.empty() && continues(kept.back())) {
    x.extent *= kept.back().extent;
    kept.pop_back();
  }
}

// Whether a reduction of operand `primary` is a pooling that FoldWindows does:
// few elements, adjacent results, and rows too short for the other folds.
// Windows of a single row are folded as rows, unless each begins at the second
// element of the one before: then rows may have any length.
bool FoldsWindows(const ReducePlan& plan, const ReduceAxis& x,
                  const ReduceSpace& space) {
  const bool overlap = x.operands[plan.direct] == 1;
  const bool one_row = plan.by_rows && space.reduced.empty();
  return plan.fold->windows != nullptr && plan.reduced > 1 &&
         plan.reduced <= kFewReduced && x.extent >= kFewColumns &&
         (x.extent <= kLongWindows || plan.reduced <= kFewPlaces ||
          (one_row && overlap)) &&
         x.results[0] == 1 && plan.results[0].dtype == plan.source.dtype &&
         (!one_row || overlap);
}

// The longest rows whose elements are folded as columns of their own, if there
// are so many rows for each total, as in a normalisation of groups of channels.
// Measured (8x1024 rows of 64 f32, AVX2, one core): means of groups of 4, 16
// and 32 took 0.25, 0.08 and 0.22 ms, the latter by rows, instead of 0.3, 0.4
// and 0.25.
constexpr int64_t kMostMerged = 64;
constexpr int64_t kManyRows = 16;  // a guess

// Makes the last reduced axis a part of x if its rows are short and adjacent.
void TakeRowsAsColumns(size_t primary, ReducePlan& plan, ReduceSpace& space,
                       ReduceAxis& x, ReduceAxis& y) {
  if (!plan.by_rows || y.extent < 2 || y.extent > kMostMerged ||
      plan.reduced < kManyRows * y.extent || x.operands[primary] != y.extent) {
    return;
  }
  plan.merged = y.extent;
  plan.by_rows = false;
  plan.reduced /= y.extent;
  x.extent *= y.extent;
  x.operands = y.operands;
  y = std::move(space.reduced.back());
  space.reduced.pop_back();
}

void MakeWindows(size_t primary, const ReduceAxis& y, ReducePlan& plan,
                 ReduceSpace& space, const ComputeSet& set) {
  space.reduced.push_back(y);
  for (int64_t i = 0; i < plan.reduced; ++i) {
    plan.places.push_back(OperandOffset(space.reduced, primary, i));
  }
  plan.rows = TakeLast(space.kept, set);
}

Status CheckValues(const program::RegisterCode& code, const ComputeSet& set,
                   ReduceKind kind) {
  const bool arg = kind == ReduceKind::kArgmax || kind == ReduceKind::kArgmin;
  const size_t values = code.outputs.size();
  if (set.results.size() != (arg ? 2 : 1) || values == 0 ||
      values > set.results.size()) {
    return InvalidArgument("Reduce has " + std::to_string(values) +
                           " values for " + std::to_string(set.results.size()) +
                           " results, which its kind does not allow.");
  }
  const RegisterType type = program::ResultType(code.code[code.outputs[0]]);
  if (FindFold(type, kind) == nullptr) {
    return InvalidArgument("Reduce of kind " +
                           std::to_string(static_cast<int>(kind)) +
                           " is not defined for register type " +
                           std::to_string(static_cast<int>(type)) + ".");
  }
  if (!Stores(type, set.results[0].view.dtype) ||
      (arg && !Stores(RegisterType::kU64, set.results[1].view.dtype))) {
    return InvalidArgument(
        "Reduce's values cannot be converted to its results' element types.");
  }
  if (values == 2 &&
      program::IsFloat(program::ResultType(code.code[code.outputs[1]]))) {
    return InvalidArgument("Reduce's indices must be integers.");
  }
  return Status();
}

}  // namespace

StatusOr<ReducePlan> MakeReducePlan(const ComputeSet& set,
                                    const program::Reduce& fields) {
  const auto kind = static_cast<ReduceKind>(fields.kind);
  const bool arg = kind == ReduceKind::kArgmax || kind == ReduceKind::kArgmin;
  auto code = program::DecodeRegisterCode(
      fields.code, fields.outputs, set.operands.size(), set.shape.size());
  if (!code.ok()) return code.status();
  IPU_RETURN_IF_ERROR(CheckValues(*code, set, kind));
  const RegisterType type = program::ResultType(code->code[code->outputs[0]]);

  ReducePlan plan;
  plan.fold = FindFold(type, kind);
  plan.item_size = program::RegisterBytes(type);
  if (arg && fields.init.size() == 16) plan.init = fields.init;
  for (const Operand& result : set.results) {
    plan.results.push_back(result.view);
  }

  const DirectFold direct = FindDirectFold(*code, set, kind);
  const size_t primary = direct.fold ? direct.operand : LargestOperand(set);
  ReduceSpace space =
      MakeReduceSpace(set, fields.num_reduced, *code, primary, arg);
  plan.reduced = space.reduced_size();
  std::vector<ReduceAxis> order = space.kept;
  ReduceAxis x = TakeLast(space.kept, set), y = TakeLast(space.reduced, set);
  const auto step = [&](const ReduceAxis& axis) {
    const int64_t stride =
        axis.extent == 1 || set.operands.empty() ? 0 : axis.operands[primary];
    return stride == 0 ? std::numeric_limits<int64_t>::max() : std::abs(stride);
  };
  // For few columns of few rows (small windows over an RGB image) the overhead
  // of each fold exceeds its work, so the elements are first gathered into
  // rows.
  const bool scattered = step(y) > step(x) && x.extent < kFewColumns &&
                         plan.reduced <= kFewReduced;
  plan.by_rows = step(y) <= step(x) || scattered;
  // The iteration order: the innermost axes are the reduced ones when folding
  // rows, and x when folding columns.
  if (!plan.by_rows) order = space.kept;
  order.insert(order.end(), space.reduced.begin(), space.reduced.end());
  if (y.dimension != kNone) order.push_back(y);
  if (!plan.by_rows && x.dimension != kNone) order.push_back(x);

  const ReduceAxis& inner = plan.by_rows ? y : x;
  if (direct.fold && !scattered &&
      (inner.extent == 1 || inner.operands[primary] == 1)) {
    plan.direct = primary;
    plan.source = set.operands[primary].view;
    plan.fold = direct.fold;
    plan.item_size = plan.source.item_size;
    plan.nanoseconds = 0.03 * plan.item_size;
    if (FoldsWindows(plan, x, space)) {
      MakeWindows(primary, y, plan, space, set);
    } else if (!arg) {
      TakeRowsAsColumns(primary, plan, space, x, y);
    }
  } else {
    auto program = MakeReduceProgram(set, order, std::move(*code));
    if (!program.ok()) return program.status();
    plan.nanoseconds = program->nanoseconds() + 0.1;
    plan.program.emplace(std::move(*program));
    plan.has_indices = plan.program->num_outputs() == 2;
    if (plan.has_indices) {
      const RegisterType index = plan.program->output_type(1);
      plan.wide_indices = program::RegisterBytes(index) == 8;
      plan.signed_indices = index == RegisterType::kI32;
    }
    if (plan.by_rows) JoinKept(space.kept, x);
  }
  plan.x = std::move(x);
  plan.y = std::move(y);
  plan.outer = std::move(space);
  return plan;
}

}  // namespace ipu::model::IPU_SIMD_NS
