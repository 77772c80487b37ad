#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_space.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

bool HasIota(const program::RegisterCode& code) {
  return std::any_of(code.code.begin(), code.code.end(), [](const auto& i) {
    return i.op == program::Opcode::kIota;
  });
}

int64_t Size(const std::vector<ReduceAxis>& axes) {
  int64_t size = 1;
  for (const ReduceAxis& axis : axes) size *= axis.extent;
  return size;
}

// Whether one step along `outer` equals the whole extent of `inner` in all
// views.
bool Joins(const ReduceAxis& outer, const ReduceAxis& inner) {
  const auto follow = [&](const std::vector<int64_t>& a,
                          const std::vector<int64_t>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i] * inner.extent) return false;
    }
    return true;
  };
  return follow(outer.operands, inner.operands) &&
         follow(outer.results, inner.results);
}

void Simplify(std::vector<ReduceAxis>& axes) {
  std::vector<ReduceAxis> simple;
  for (ReduceAxis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!simple.empty() && Joins(simple.back(), axis)) {
      axis.extent *= simple.back().extent;
      axis.dimension = simple.back().dimension;
      simple.back() = std::move(axis);
    } else {
      simple.push_back(std::move(axis));
    }
  }
  axes = std::move(simple);
}

template <typename Strides>
int64_t Offset(const std::vector<ReduceAxis>& axes, int64_t i,
               const Strides& strides) {
  int64_t offset = 0;
  for (size_t a = axes.size(); a-- > 0;) {
    offset += i % axes[a].extent * strides(axes[a]);
    i /= axes[a].extent;
  }
  return offset;
}

}  // namespace

int64_t ReduceSpace::kept_size() const { return Size(kept); }
int64_t ReduceSpace::reduced_size() const { return Size(reduced); }

size_t LargestOperand(const ComputeSet& set) {
  size_t largest = 0;
  int64_t most = -1;
  for (size_t i = 0; i < set.operands.size(); ++i) {
    int64_t size = 1;
    for (size_t d = 0; d < set.shape.size(); ++d) {
      if (set.operands[i].Stride(d) != 0) size *= set.shape[d];
    }
    if (size > most) {
      most = size;
      largest = i;
    }
  }
  return largest;
}

ReduceSpace MakeReduceSpace(const ComputeSet& set, size_t num_reduced,
                            const program::RegisterCode& code, size_t primary,
                            bool in_order) {
  ReduceSpace space;
  const size_t first_reduced = set.shape.size() - num_reduced;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    ReduceAxis axis;
    axis.extent = set.shape[d];
    axis.dimension = d;
    for (const Operand& operand : set.operands) {
      axis.operands.push_back(operand.Stride(d));
    }
    for (const Operand& result : set.results) {
      axis.results.push_back(d < first_reduced ? result.Stride(d) : 0);
    }
    (d < first_reduced ? space.kept : space.reduced).push_back(axis);
  }
  const auto farther = [primary](const ReduceAxis& a, const ReduceAxis& b) {
    const auto step = [primary](const ReduceAxis& axis) {
      // Axes along which the operand is broadcast go outermost, so that whole
      // blocks repeat.
      const int64_t stride =
          primary < axis.operands.size() ? axis.operands[primary] : 0;
      return stride == 0 ? std::numeric_limits<int64_t>::max()
                         : std::abs(stride);
    };
    return step(a) > step(b);
  };
  std::stable_sort(space.kept.begin(), space.kept.end(), farther);
  if (!in_order) {
    std::stable_sort(space.reduced.begin(), space.reduced.end(), farther);
  }
  if (!HasIota(code)) {
    Simplify(space.kept);
    Simplify(space.reduced);
  }
  return space;
}

StatusOr<RegisterProgram> MakeReduceProgram(
    const ComputeSet& set, const std::vector<ReduceAxis>& order,
    program::RegisterCode code) {
  std::vector<int64_t> shape;
  std::vector<Operand> operands;
  for (const ReduceAxis& axis : order) shape.push_back(axis.extent);
  for (size_t i = 0; i < set.operands.size(); ++i) {
    Operand operand = {.view = set.operands[i].view, .dims = {}};
    operand.view.shape = shape;
    operand.view.strides.clear();
    for (size_t d = 0; d < order.size(); ++d) {
      operand.view.strides.push_back(order[d].operands[i]);
      operand.dims.push_back(
          order[d].operands[i] == 0 ? -1 : static_cast<int32_t>(d));
    }
    operands.push_back(std::move(operand));
  }
  // Renumber the dimensions that IOTA names.
  for (program::Instruction& i : code.code) {
    if (i.op != program::Opcode::kIota) continue;
    size_t d = 0;
    while (order[d].dimension != i.imm) ++d;
    i.imm = d;
  }
  return RegisterProgram::Make(std::move(code), shape, operands);
}

int64_t ResultOffset(const std::vector<ReduceAxis>& axes, size_t result,
                     int64_t i) {
  return Offset(axes, i,
                [result](const ReduceAxis& a) { return a.results[result]; });
}

int64_t OperandOffset(const std::vector<ReduceAxis>& axes, size_t operand,
                      int64_t i) {
  return Offset(axes, i,
                [operand](const ReduceAxis& a) { return a.operands[operand]; });
}

}  // namespace ipu::model::IPU_SIMD_NS
