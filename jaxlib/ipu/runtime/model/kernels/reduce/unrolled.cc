#include "jaxlib/ipu/runtime/model/kernels/reduce/unrolled.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/combiner.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;
using program::ReduceKind;
using program::RegisterType;

// The most elements of a total, and of one whose elements are adjacent but
// computed or not next to those of the next total. Measured (10^6 f32, AVX-512,
// one core) of a fold that took rows one by one: products of rows of 2, 3, 4
// and 8 took 281, 241, 260 and 412 us instead of 728, 414, 300 and 157, `any`
// of 8 rows 60 instead of 119. If machine code shuffles the elements, products
// of 500,000 adjacent rows of 2 took 75 us instead of 176, sums of 262,144 rows
// of 4 96 instead of 190.
constexpr int64_t kMostElements = 8;
constexpr int64_t kMostInRow = 4;
// Adjacent rows that are shuffled, and those of 2-byte elements. Measured with
// AVX2 (200,000 elements, one core): sums, maxima and argmaxima of rows of 5 to
// 16 f32 took 26 to 54 us instead of 45 to 250, those of 5 to 10 bytes at most
// as much as before; maxima of rows of 5 bf16 76 instead of 557, but of rows of
// 8, which are transposed in other ways, 142 instead of 57.
constexpr int64_t kMostShuffled = IPU_AVX512 ? kMostElements : 16;
constexpr int64_t kMostShuffledOf2Bytes = IPU_AVX512 ? kMostElements : 7;
// Windows that are one or two elements apart, whether they overlap or not.
// Measured (2^17 f32, AVX2, one core) of folds of rows and of windows: maxima
// of 5 and 9 took 69 and 124 us instead of 275, 1,076 and 85, 118; two apart 65
// and 100 instead of 159, 518 and 95, 152. Max-pooling of 2x2 of 64x32x28x28
// took 0.6 to 0.8 ms instead of 2.2.
constexpr int64_t kMostNear = 12;
// The fewest totals; a guess: a few vectors of them.
constexpr int64_t kFewestTotals = 65;
// As many elements in all, and of each total, are a few steps of a small loop.
// A guess, beyond 75: two sums and a map of as many took some 30 ns in a loop
// instead of 190 as calls (5 bodies, AVX-512).
constexpr int64_t kFewElements = 96;
constexpr int64_t kFewOfTotal = 16;
// The most operands and instructions of the program. Guesses: with more, their
// values do not stay in registers.
constexpr size_t kMostOperands = 16;
constexpr size_t kMostInstructions = 160;

bool IsArg(ReduceKind kind) {
  return kind == ReduceKind::kArgmax || kind == ReduceKind::kArgmin;
}

uint64_t BitsOf(uint64_t number, RegisterType type) {
  if (type == RegisterType::kF32) {
    return std::bit_cast<uint32_t>(static_cast<float>(number));
  }
  if (type == RegisterType::kF64) {
    return std::bit_cast<uint64_t>(static_cast<double>(number));
  }
  return number;
}

// Writes a program of several elements of a compute set.
class Unroller {
 public:
  Unroller(const program::RegisterCode& code, const ComputeSet& set,
           size_t num_kept)
      : code_(code),
        set_(set),
        num_kept_(num_kept),
        first_(code.code.size(), kNotYet) {}

  // Adds what computes output 0 at an index along the reduced dimensions.
  uint16_t Element(const std::vector<int64_t>& index) {
    std::vector<uint16_t> made;
    for (size_t at = 0; at < code_.code.size(); ++at) {
      made.push_back(Copy(at, index, made));
    }
    return made[code_.outputs[0]];
  }

  uint16_t Add(Opcode op, RegisterType type, std::vector<uint16_t> values,
               uint64_t imm = 0) {
    Instruction i{op, type, {}, imm};
    std::copy(values.begin(), values.end(), i.values);
    made_.code.push_back(i);
    return static_cast<uint16_t>(made_.code.size() - 1);
  }
  uint16_t Constant(uint64_t number, RegisterType type) {
    return Add(Opcode::kConst, type, {}, BitsOf(number, type));
  }

  size_t num_instructions() const { return made_.code.size(); }
  size_t num_operands() const { return operands_.size(); }

  Evaluation Finish(std::vector<uint16_t> outputs) {
    made_.outputs = std::move(outputs);
    Evaluation all{std::move(made_), {}, std::move(operands_), set_.results};
    all.shape.assign(set_.shape.begin(), set_.shape.begin() + num_kept_);
    for (Operand& result : all.results) result.dims.resize(num_kept_);
    return all;
  }

 private:
  static constexpr uint32_t kNotYet = ~0u;

  // An instruction of the element at an index, whose earlier ones are `made`.
  // What is the same for all elements is added once.
  uint16_t Copy(size_t at, const std::vector<int64_t>& index,
                const std::vector<uint16_t>& made) {
    Instruction i = code_.code[at];
    if (i.op == Opcode::kLoad) return Remember(at, Load(i, index));
    if (i.op == Opcode::kIota && i.imm >= num_kept_) {
      const auto number = static_cast<uint64_t>(index[i.imm - num_kept_]);
      return Remember(at, Constant(number, i.type));
    }
    const bool same = std::all_of(
        i.operands().begin(), i.operands().end(),
        [&](uint16_t value) { return first_[value] == made[value]; });
    if (same && first_[at] != kNotYet) {
      return static_cast<uint16_t>(first_[at]);
    }
    for (uint16_t& value : i.operands()) value = made[value];
    made_.code.push_back(i);
    return Remember(at, static_cast<uint16_t>(made_.code.size() - 1));
  }

  uint16_t Remember(size_t at, uint16_t number) {
    if (first_[at] == kNotYet) first_[at] = number;
    return number;
  }

  uint16_t Load(Instruction load, const std::vector<int64_t>& index) {
    Operand operand = set_.operands[load.imm];
    for (size_t d = 0; d < index.size(); ++d) {
      operand.view.offset +=
          index[d] * operand.Stride(num_kept_ + d) * operand.view.item_size;
    }
    operand.dims.resize(num_kept_);
    const std::pair place{load.imm, operand.view.offset};
    const auto [found, is_new] = loads_.insert({place, uint16_t{}});
    if (is_new) {
      found->second = Add(Opcode::kLoad, load.type, {}, operands_.size());
      operands_.push_back(std::move(operand));
    }
    return found->second;
  }

  const program::RegisterCode& code_;
  const ComputeSet& set_;
  const size_t num_kept_;
  program::RegisterCode made_;
  std::vector<Operand> operands_;
  std::map<std::pair<uint64_t, int64_t>, uint16_t> loads_;
  std::vector<uint32_t> first_;  // of each instruction, its first copy
};

// What computes an element of a total, by its number. Elements are computed
// when they are combined, so that few values are alive at a time.
using ElementFn = std::function<uint16_t(size_t)>;

// Combines elements by halves, as a fold of one vector does, so that the bits
// are the same.
uint16_t FoldMonoid(ReduceKind kind, RegisterType type, size_t count,
                    const ElementFn& element, Unroller& to) {
  const Opcode op = CombinerOf(kind, type)->op;
  const bool adds_zero = kind == ReduceKind::kSum && program::IsFloat(type);
  // Element i once those from `half` on have been added to the ones before.
  const auto folded = [&](auto&& self, size_t i, size_t half) -> uint16_t {
    if (half >= count) {
      const uint16_t value = element(i);
      if (i > 0 || !adds_zero) return value;
      // +0 of elements that are all -0
      return to.Add(Opcode::kAdd, type, {value, to.Constant(0, type)});
    }
    const uint16_t first = self(self, i, 2 * half);
    if (i + half >= count) return first;
    const uint16_t second = self(self, i + half, 2 * half);
    return to.Add(op, type, {first, second});
  };
  return folded(folded, 0, 1);
}

// The extreme and its index: NaN before all others, then the value, then what
// comes first.
std::vector<uint16_t> FoldArg(ReduceKind kind, RegisterType type,
                              RegisterType index_type, size_t count,
                              const ElementFn& element, Unroller& to) {
  const bool max = kind == ReduceKind::kArgmax;
  const Opcode beats = max ? Opcode::kGt : Opcode::kLt;
  const Opcode beaten = max ? Opcode::kLe : Opcode::kGe;  // or equal
  constexpr RegisterType kFlag = RegisterType::kU32;
  struct Candidate {
    uint16_t value, where;
  };
  // The better of two, of which the first comes first.
  const auto better = [&](const Candidate& a, const Candidate& b) {
    if (program::IsFloat(type)) {  // NaN beats all but another one before it
      const uint16_t loses = to.Add(beaten, type, {b.value, a.value});
      const uint16_t nan = to.Add(Opcode::kNe, type, {a.value, a.value});
      const uint16_t stays = to.Add(Opcode::kOr, kFlag, {loses, nan});
      return Candidate{
          to.Add(Opcode::kSelect, type, {stays, a.value, b.value}),
          to.Add(Opcode::kSelect, index_type, {stays, a.where, b.where})};
    }
    const uint16_t wins = to.Add(beats, type, {b.value, a.value});
    return Candidate{
        to.Add(Opcode::kSelect, type, {wins, b.value, a.value}),
        to.Add(Opcode::kSelect, index_type, {wins, b.where, a.where})};
  };
  // The best of `size` elements, a power of two, or of those that there are.
  const auto best = [&](auto&& self, size_t from, size_t size) -> Candidate {
    if (size == 1) return {element(from), to.Constant(from, index_type)};
    const Candidate first = self(self, from, size / 2);
    if (from + size / 2 >= count) return first;
    return better(first, self(self, from + size / 2, size / 2));
  };
  const Candidate found = best(best, 0, std::bit_ceil(count));
  return {found.value, found.where};
}

// All indices along the last dimensions, in row-major order.
std::vector<std::vector<int64_t>> Indices(const std::vector<int64_t>& extents) {
  std::vector<std::vector<int64_t>> all = {{}};
  for (int64_t extent : extents) {
    std::vector<std::vector<int64_t>> longer;
    for (const auto& index : all) {
      for (int64_t i = 0; i < extent; ++i) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Whether the elements of all totals are few.
bool AreFew(ReduceKind kind, const ReducePlan& plan, int64_t totals) {
  const int64_t bytes = plan.reduced * plan.item_size;
  // A sum of half a vector or a whole one is a step of its own (scalar_loop.h).
  if (totals == 1 && kind == ReduceKind::kSum && (bytes == 16 || bytes == 32)) {
    return false;
  }
  return totals > 0 && totals * plan.reduced <= kFewElements &&
         plan.reduced <= kFewOfTotal;
}

// Whether machine code shuffles the elements of all totals.
bool CanShuffle(const ComputeSet& set, size_t num_kept) {
  const std::vector<int64_t> kept(set.shape.begin(),
                                  set.shape.begin() + num_kept);
  return std::all_of(set.operands.begin(), set.operands.end(),
                     [&](Operand operand) {
                       operand.dims.resize(num_kept);
                       const StridedIterator iterator(kept, operand);
                       return iterator.dense() || iterator.uniform() ||
                              VectorsInGroup(iterator, kLanes<uint32_t>, 1) > 0;
                     });
}

// Whether each of many totals has few elements. Monoids of columns and windows
// have good folds if they are operands as they are, but for windows that are
// one or two elements apart, and so have adjacent rows whose elements are not
// `shuffled`.
bool AreShort(ReduceKind kind, const ReducePlan& plan, int64_t totals,
              bool shuffled) {
  const int64_t step =
      plan.program ? plan.reduced : plan.x.operands[plan.direct];
  const bool near = plan.by_rows && (step == 1 || step == 2);
  const bool is_2_bytes = plan.item_size == 2;
  const int64_t most = !plan.by_rows ? kMostElements
                       : shuffled
                           ? is_2_bytes ? kMostShuffledOf2Bytes : kMostShuffled
                       : near ? kMostNear
                              : kMostInRow;
  if (plan.reduced > most || totals < kFewestTotals ||
      (!plan.places.empty() && !near)) {
    return false;
  }
  if (plan.program || IsArg(kind)) return true;
  return plan.by_rows &&
         (shuffled || plan.x.operands[plan.direct] != plan.reduced);
}

}  // namespace

std::optional<Evaluation> Unrolled(const ComputeSet& set,
                                   const program::Reduce& fields,
                                   const ReducePlan& plan) {
  const auto kind = static_cast<ReduceKind>(fields.kind);
  const size_t num_kept = set.shape.size() - fields.num_reduced;
  int64_t totals = 1;
  for (size_t d = 0; d < num_kept; ++d) totals *= set.shape[d];
  if (plan.reduced < 2 || plan.has_indices ||
      !(AreFew(kind, plan, totals) ||
        AreShort(kind, plan, totals, CanShuffle(set, num_kept)))) {
    return std::nullopt;
  }
  auto code = program::DecodeRegisterCode(
      fields.code, fields.outputs, set.operands.size(), set.shape.size());
  if (!code.ok()) return std::nullopt;
  const RegisterType type = program::ResultType(code->code[code->outputs[0]]);
  const DType value = set.results[0].view.dtype;
  if (program::RegisterTypeOf(value) != type) return std::nullopt;

  Unroller unroller(*code, set, num_kept);
  const auto indices = Indices({set.shape.begin() + num_kept, set.shape.end()});
  const ElementFn element = [&](size_t k) {
    return unroller.Element(indices[k]);
  };
  std::vector<uint16_t> outputs;
  if (IsArg(kind)) {
    outputs =
        FoldArg(kind, type, program::RegisterTypeOf(set.results[1].view.dtype),
                indices.size(), element, unroller);
  } else {
    outputs = {FoldMonoid(kind, type, indices.size(), element, unroller)};
  }
  if (unroller.num_operands() > kMostOperands ||
      unroller.num_instructions() > kMostInstructions) {
    return std::nullopt;
  }
  return unroller.Finish(std::move(outputs));
}

}  // namespace ipu::model::IPU_SIMD_NS
