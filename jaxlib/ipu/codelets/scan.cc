// Prefix sums and other scans; `Scan` in jaxlib/ipu/program/schema.py.
//
// Several sequences are scanned at once, one in each lane of a vector. If the
// elements of a sequence are adjacent in memory instead, there are two cases: a
// function that is a single operation is applied element by element,
// interleaved over several sequences; for any other function the elements are
// transposed in blocks that stay in the cache.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/register_types.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;

// totals[i] = f(totals[i], from[i]); to[i] = totals[i]. `from` and `to` may be
// the same.
template <typename T>
using Combine = void (*)(int64_t n, T* totals, const T* from, T* to);

template <typename Op, typename T>
void CombineWith(int64_t n, T* totals, const T* from, T* to) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    const Vector<T> total =
        Op::Do(Load<Vector<T>>(totals + i), Load<Vector<T>>(from + i));
    Store(totals + i, total);
    Store(to + i, total);
  }
  if (i == n) return;
  const Mask<T> rest(n - i);
  const Vector<T> total = Op::Do(rest.Load(totals + i), rest.Load(from + i));
  rest.Store(totals + i, total);
  rest.Store(to + i, total);
}

// The same for `n` rows of `count` contiguous elements each, which may be the
// same in memory: every total runs through its row, from the last element to
// the first if `reverse`.
template <typename T>
using CombineRows = void (*)(int64_t n, int64_t count, bool reverse, T* totals,
                             const T* const* from, T* const* to);

// A vector whose first lane holds one element: the operations define maxima and
// minima on vectors.
template <typename T>
using Lane = Vector<T, 16 / sizeof(T)>;

// Elements [begin, end) of kRows rows. Each operation depends on the previous
// one, so rows are interleaved to hide its latency.
template <int kRows, typename Op, typename T>
inline void CombineFew(int64_t begin, int64_t end, bool reverse, T* totals,
                       const T* const* from, T* const* to) {
  Lane<T> total[kRows];
  for (int r = 0; r < kRows; ++r) total[r] = LoadOne<Lane<T>>(totals + r);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = reverse ? begin + end - 1 - i : i;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      total[r] = Op::Do(total[r], LoadOne<Lane<T>>(from[r] + at));
      StoreOne(to[r] + at, total[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) StoreOne(totals + r, total[r]);
}

// The same for as many rows as a vector has lanes and a multiple of as many
// elements, by squares that are transposed in registers. Measured on squares in
// the first-level cache: 0.45 of the time (f32 and i32), 0.66 (f64), AVX-512.
template <typename Op, typename T>
void CombineSquares(int64_t begin, int64_t end, bool reverse, T* totals,
                    const T* const* from, T* const* to) {
  using V = Vector<T>;
  constexpr int kN = kLanes<T>;
  V total = Load<V>(totals);
  for (int64_t i = begin; i < end; i += kN) {
    const int64_t at = reverse ? begin + end - kN - i : i;
    V v[kN];
#pragma GCC unroll 16
    for (int r = 0; r < kN; ++r) v[r] = Load<V>(from[r] + at);
    TransposeLanes<T>(v);
    if (reverse) {
#pragma GCC unroll 16
      for (int k = 0; k < kN; ++k) {
        V& x = v[kN - 1 - k];
        x = total = Op::Do(total, x);
      }
    } else {
#pragma GCC unroll 16
      for (int k = 0; k < kN; ++k) v[k] = total = Op::Do(total, v[k]);
    }
    TransposeLanes<T>(v);
#pragma GCC unroll 16
    for (int r = 0; r < kN; ++r) Store(to[r] + at, v[r]);
  }
  Store(totals, total);
}

template <typename Op, typename T>
void CombineRowsWith(int64_t n, int64_t count, bool reverse, T* totals,
                     const T* const* from, T* const* to) {
  constexpr int kRows = 8;
  int64_t i = 0;
  if constexpr (IPU_AVX512) {
    constexpr int kN = kLanes<T>;
    // What does not fill a square comes last in the row.
    const int64_t squares = count / kN * kN;
    const auto few = [&](int64_t at) {
      for (int r = 0; r < kN; r += kRows) {
        CombineFew<kRows, Op>(squares, count, reverse, totals + at + r,
                              from + at + r, to + at + r);
      }
    };
    for (; i + kN <= n && squares > 0; i += kN) {
      if (reverse) few(i);
      CombineSquares<Op>(0, squares, reverse, totals + i, from + i, to + i);
      if (!reverse) few(i);
    }
  }
  for (; i + kRows <= n; i += kRows) {
    CombineFew<kRows, Op>(0, count, reverse, totals + i, from + i, to + i);
  }
  for (; i < n; ++i) {
    CombineFew<1, Op>(0, count, reverse, totals + i, from + i, to + i);
  }
}

// A single operation in both forms.
template <typename T>
struct Combines {
  Combine<T> lanes = nullptr;
  CombineRows<T> rows = nullptr;
};

template <typename Op, typename T>
constexpr Combines<T> kCombines = {CombineWith<Op, T>, CombineRowsWith<Op, T>};

// The operation if `code` applies exactly one to the total and the element;
// null otherwise.
template <typename T>
Combines<T> FindCombine(const program::RegisterCode& code) {
  if (code.code.size() != 3 || code.outputs[0] != 2) return {};
  const auto loads = [&](size_t value, uint64_t operand) {
    return code.code[value].op == Opcode::kLoad &&
           code.code[value].imm == operand;
  };
  const program::Instruction& last = code.code[2];
  const bool in_order = last.values[0] == 0 && last.values[1] == 1;
  if (!loads(0, 0) || !loads(1, 1) || !in_order) return {};
  switch (last.op) {
    case Opcode::kAdd:
      return kCombines<Add, T>;
    case Opcode::kMul:
      return kCombines<Mul, T>;
    case Opcode::kMax:
      return kCombines<Max, T>;
    case Opcode::kMin:
      return kCombines<Min, T>;
    default:
      return {};
  }
}

// An operand or result, indexed by (sequence, step).
struct Side {
  View view;
  Axis sequence;
  int64_t step;  // elements

  char* At(const Memory& memory, int64_t i, int64_t at_step) const {
    return view.Data(memory) +
           (sequence.At(i) + at_step * step) * view.item_size;
  }

  // Whether sequences of `steps` elements are contiguous without gaps.
  bool Dense(int64_t steps) const {
    return sequence.even() && sequence.stride() == steps && std::abs(step) == 1;
  }
};

template <typename T>
class ScanKernel final : public Kernel {
 public:
  using Run_ = RunOf<T>;

  ScanKernel(Side from, Side start, Side to, int64_t sequences, int64_t steps,
             Combines<T> combine, RegisterProgram program)
      : from_(std::move(from)),
        start_(std::move(start)),
        to_(std::move(to)),
        sequences_(sequences),
        steps_(steps),
        combine_(combine),
        program_(std::move(program)),
        load_(LoadRunOf<Run_>(from_.view.dtype)),
        load_start_(LoadRunOf<Run_>(start_.view.dtype)),
        store_(StoreRunOf<Run_>(to_.view.dtype)),
        reversed_(from_.step < 0),
        in_place_(
            combine_.lanes && from_.view.item_size == sizeof(T) &&
            to_.view.item_size == sizeof(T) &&
            (SideBySide()
                 ? from_.sequence.stride() == 1 && to_.sequence.stride() == 1
                 : steps_ > kMostTransposed && from_.step == to_.step &&
                       std::abs(from_.step) == 1)),
        dense_(steps_ <= kSteps && (combine_.rows || !reversed_) &&
               from_.step == to_.step && from_.Dense(steps_) &&
               to_.Dense(steps_)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const double each =
        1 + (combine_.lanes
                 ? 0
                 : program_.nanoseconds() + kCallNanoseconds / kSequences);
    const double work = each * sequences_ * steps_;
    const int64_t wanted =
        std::clamp<int64_t>(work / ThreadPool::kWorthNanoseconds, 1,
                            4 * int64_t{threads.threads()});
    const int64_t lanes =
        std::clamp<int64_t>((sequences_ + wanted - 1) / wanted,
                            std::min<int64_t>(16, sequences_), kSequences);
    const int64_t pieces = (sequences_ + lanes - 1) / lanes;
    const double grain = ThreadPool::kWorthNanoseconds * pieces / (work + 1);
    threads.For(pieces, std::clamp<int64_t>(grain, 1, pieces),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    Scan(memory,
                         {i * lanes, std::min(sequences_, (i + 1) * lanes)});
                  }
                });
  }

 private:
  static constexpr int64_t kSequences = 256, kSteps = 64;
  // TransposeRun may write up to a vector beyond the end.
  static constexpr int64_t kBlock = kSequences * kSteps + 16;
  static constexpr double kCallNanoseconds = 40;

  void Scan(const Memory& memory, IndexRange lanes) const {
    static thread_local Scratch scratch;
    const int64_t n = lanes.size();
    // Totals, then a block of elements and its transpose.
    T* const totals = scratch.Get<T>(kSequences + 2 * kBlock);
    T* const block = totals + kSequences;
    T* const turned = block + kBlock;
    start_.sequence.ForRuns(lanes, [&](int64_t, int64_t first, int64_t count) {
      load_start_(start_.At(memory, lanes.begin + first, 0),
                  start_.sequence.stride(), count, Bits(totals + first));
    });
    std::unique_ptr<RegisterProgram::State> state;
    if (!combine_.lanes) {
      state = std::make_unique<RegisterProgram::State>(program_);
    }
    const bool side_by_side = SideBySide();
    if (in_place_) {
      return side_by_side ? LanesInPlace(memory, lanes, totals)
                          : RowsInPlace(memory, lanes, totals);
    }
    const int64_t most = side_by_side ? 1 : kSteps;
    for (int64_t s = 0; s < steps_; s += most) {
      const int64_t count = std::min(most, steps_ - s);
      if (side_by_side || count == 1) {
        ReadStep(memory, lanes, s, block);
        Apply(state.get(), n, totals, block);
        WriteStep(memory, lanes, s, block);
        continue;
      }
      ReadRows(memory, lanes, s, count, turned);
      const bool reverse = dense_ && reversed_;
      if (combine_.rows && !IsQuickTransposed(count)) {
        T* rows[kSequences];
        for (int64_t i = 0; i < n; ++i) rows[i] = turned + i * count;
        combine_.rows(n, count, reverse, totals, rows, rows);
      } else {
        TransposeRun(turned, count, n, count, block, n);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = reverse ? count - 1 - i : i;
          Apply(state.get(), n, totals, block + at * n);
        }
        TransposeRun(block, n, count, n, turned, count);
      }
      WriteRows(memory, lanes, s, count, turned);
    }
  }

  // Whether steps are further apart than sequences.
  bool SideBySide() const {
    return std::abs(from_.sequence.stride()) < std::abs(from_.step);
  }

  // Reads elements where they are, and writes totals where they go.
  void LanesInPlace(const Memory& memory, IndexRange lanes, T* totals) const {
    for (int64_t s = 0; s < steps_; ++s) {
      from_.sequence.ForRuns(lanes, [&](int64_t, int64_t run, int64_t size) {
        const int64_t begin = lanes.begin + run;
        to_.sequence.ForRuns(
            {begin, begin + size}, [&](int64_t, int64_t first, int64_t count) {
              const int64_t i = begin + first;
              combine_.lanes(count, totals + i - lanes.begin,
                             reinterpret_cast<const T*>(from_.At(memory, i, s)),
                             reinterpret_cast<T*>(to_.At(memory, i, s)));
            });
      });
    }
  }

  void RowsInPlace(const Memory& memory, IndexRange lanes, T* totals) const {
    const T* from[kSequences];
    T* to[kSequences];
    const int64_t first = reversed_ ? steps_ - 1 : 0;
    for (int64_t i = 0; i < lanes.size(); ++i) {
      const int64_t at = lanes.begin + i;
      from[i] = reinterpret_cast<const T*>(from_.At(memory, at, first));
      to[i] = reinterpret_cast<T*>(to_.At(memory, at, first));
    }
    combine_.rows(lanes.size(), steps_, reversed_, totals, from, to);
  }

  // Reads `count` elements of each sequence in a range, row by row; a `dense_`
  // range in one piece.
  void ReadRows(const Memory& memory, IndexRange lanes, int64_t s,
                int64_t count, T* rows) const {
    if (dense_) {
      return load_(from_.At(memory, lanes.begin, reversed_ ? steps_ - 1 : 0), 1,
                   lanes.size() * count, Bits(rows));
    }
    for (int64_t i = 0; i < lanes.size(); ++i) {
      load_(from_.At(memory, lanes.begin + i, s), from_.step, count,
            Bits(rows + i * count));
    }
  }

  void WriteRows(const Memory& memory, IndexRange lanes, int64_t s,
                 int64_t count, const T* rows) const {
    if (dense_) {
      return store_(Bits(rows), lanes.size() * count,
                    to_.At(memory, lanes.begin, reversed_ ? steps_ - 1 : 0), 1);
    }
    for (int64_t i = 0; i < lanes.size(); ++i) {
      store_(Bits(rows + i * count), count, to_.At(memory, lanes.begin + i, s),
             to_.step);
    }
  }

  // Reads one element of each sequence in a range.
  void ReadStep(const Memory& memory, IndexRange lanes, int64_t s,
                T* row) const {
    from_.sequence.ForRuns(lanes, [&](int64_t, int64_t first, int64_t count) {
      load_(from_.At(memory, lanes.begin + first, s), from_.sequence.stride(),
            count, Bits(row + first));
    });
  }

  void WriteStep(const Memory& memory, IndexRange lanes, int64_t s,
                 const T* row) const {
    to_.sequence.ForRuns(lanes, [&](int64_t, int64_t first, int64_t count) {
      store_(Bits(row + first), count, to_.At(memory, lanes.begin + first, s),
             to_.sequence.stride());
    });
  }

  void Apply(RegisterProgram::State* state, int64_t n, T* totals,
             T* elements) const {
    if (combine_.lanes) return combine_.lanes(n, totals, elements, elements);
    const void* const operands[] = {totals, elements};
    void* const outs[] = {totals};
    program_.Call(*state, operands, outs, n);
    std::copy_n(totals, n, elements);
  }

  static Run_* Bits(T* values) { return reinterpret_cast<Run_*>(values); }
  static const Run_* Bits(const T* values) {
    return reinterpret_cast<const Run_*>(values);
  }

  const Side from_, start_, to_;
  const int64_t sequences_, steps_;
  const Combines<T> combine_;
  const RegisterProgram program_;  // used if combine_ is null
  const LoadRun<Run_> load_, load_start_;
  const StoreRun<Run_> store_;
  const bool reversed_;
  const bool in_place_;  // long enough runs of T in memory
  const bool dense_;     // short, contiguous sequences
};

Side SideOf(const ComputeSet& set, const Operand& operand, bool reverse) {
  const size_t last = set.shape.size() - 1;
  std::vector<Loop> loops;
  for (size_t d = 0; d < last; ++d) {
    loops.push_back({set.shape[d], operand.Stride(d)});
  }
  Side side = {operand.view, Axis(loops), operand.Stride(last)};
  if (reverse) {
    side.view.offset +=
        (set.shape[last] - 1) * side.step * int64_t{side.view.item_size};
    side.step = -side.step;
  }
  return side;
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Scan& fields) {
  if (set.shape.empty() || set.operands.size() != 2 ||
      set.results.size() != 1) {
    return InvalidArgument(
        "Scan takes 2 operands and 1 result over at least one dimension, "
        "got " +
        std::to_string(set.operands.size()) + " and " +
        std::to_string(set.results.size()) + " over " +
        std::to_string(set.shape.size()) + '.');
  }
  const int64_t steps = set.shape.back();
  int64_t sequences = 1;
  for (int64_t n : set.shape) sequences *= n;
  if (sequences == 0) return KernelOr(nullptr);
  sequences /= steps;
  if (steps > 1 && set.operands[1].Stride(set.shape.size() - 1) != 0) {
    return InvalidArgument(
        "The start values of a Scan must not vary along the scanned "
        "dimension.");
  }
  const std::vector<uint16_t> outputs = {fields.combine_output};
  auto code = program::DecodeRegisterCode(fields.combine, outputs, 2, 0);
  if (!code.ok()) return code.status();
  auto function = RegisterProgram::MakeFunction(fields.combine, outputs, 2);
  if (!function.ok()) return function.status();
  const DType dtype = set.operands[0].view.dtype;
  const auto type = program::RegisterTypeOf(dtype);
  for (const program::Instruction& i : code->code) {
    if (i.op == Opcode::kLoad && i.type != type) {
      return InvalidArgument(
          "Scan's function loads a type other than its elements'.");
    }
  }
  if (function->output_type(0) != type || set.operands[1].view.dtype != dtype ||
      set.results[0].view.dtype != dtype) {
    return InvalidArgument(
        "Scan's elements, start values and totals must have the same type.");
  }
  const bool reverse = fields.reverse != 0;
  return WithRegister(type, [&]<typename T>(T) {
    return KernelOr(std::make_unique<ScanKernel<T>>(
        SideOf(set, set.operands[0], reverse),
        SideOf(set, set.operands[1], false),
        SideOf(set, set.results[0], reverse), sequences, steps,
        FindCombine<T>(*code), std::move(*function)));
  });
}

}  // namespace ipu::model::IPU_SIMD_NS
