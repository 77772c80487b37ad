#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_sources.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/register_narrow.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Runs a program row by row. Within a row, each tensor is in one piece or one
// element, or its lanes can be shuffled, so that one call of machine code reads
// and writes all of them in place. The indices of rows are operands, too.

// The time of a row's call; a guess: 7 to 12 have been measured.
constexpr double kRowNanoseconds = 10;
// Measured (AVX-512, one core; 2^18 elements of f32): with rows of 128, of a
// matrix minus a column, of a slice, and of numbers rotated in the plane,
// blocks take 30, 45 and 42 us, rows 27, 37 and 39; with rows of 64 it is 30,
// 47 and 43 against 40, 45 and 54. Rows of 128 elements of bf16 take 12 % more
// than blocks, rows of 256 as much.
constexpr int64_t kFewestInRow = 128;
constexpr int64_t kFewestBytes = 512;

// Programs of more tensors than this (a guess) allocate memory in each run.
constexpr size_t kFewTensors = 16;

// The first base of a row's tensors. Each has one, so that a row expects that
// any two may share storage.
constexpr uint32_t kFirst = kFirstArgumentBase;
static_assert(MayAlias(kFirst, kFirst + 1));

// Bases from here on are cells with the index of a row along a dimension, one
// for each dimension and type.
constexpr uint32_t kFirstCell = uint32_t{1} << 31;
constexpr size_t kFewCells = 8;  // a guess, as above

// A dimension along which rows follow each other.
struct RowDimension {
  int64_t extent;
  std::vector<int64_t> steps;  // bytes of each base
  size_t dimension;            // of the iteration space
};

// A tensor without its first dimensions.
Operand From(Operand tensor, size_t first) {
  tensor.dims.erase(tensor.dims.begin(),
                    tensor.dims.begin() + static_cast<std::ptrdiff_t>(first));
  return tensor;
}

// Whether machine code can read and write all tensors in place over the
// dimensions from `first` on.
bool IsRow(const Evaluation& evaluation, size_t first) {
  const std::vector<int64_t> shape(evaluation.shape.begin() + first,
                                   evaluation.shape.end());
  int64_t length = 1;
  for (int64_t extent : shape) length *= extent;
  return std::all_of(evaluation.operands.begin(), evaluation.operands.end(),
                     [&](const Operand& tensor) {
                       const StridedIterator row(shape, From(tensor, first));
                       return row.dense() || row.uniform() ||
                              VectorsInGroup(row, kLanes<uint32_t>, 1) > 0;
                     }) &&
         std::all_of(evaluation.results.begin(), evaluation.results.end(),
                     [&](const Operand& tensor) {
                       const StridedIterator row(shape, From(tensor, first));
                       return row.dense() ||
                              StoresAlternately(length, row.spacing());
                     });
}

// Whether two tensors have the same base and move alike from row to row.
bool AreAlike(const Operand& a, const Operand& b, size_t first) {
  bool alike =
      a.view.base == b.view.base && a.view.item_size == b.view.item_size;
  for (size_t d = 0; d < first; ++d) alike &= a.Stride(d) == b.Stride(d);
  return alike;
}

// Of an element of any tensor.
int64_t LeastBytes(const Evaluation& evaluation) {
  int64_t bytes = sizeof(uint64_t);
  for (const auto* tensors : {&evaluation.operands, &evaluation.results}) {
    for (const Operand& tensor : *tensors) {
      bytes = std::min<int64_t>(bytes, tensor.view.item_size);
    }
  }
  return bytes;
}

void RunRecorded(const Step& step, const Frame& frame) {
  const auto* evaluator =
      static_cast<const Evaluator*>(PayloadOf<const void*>(step));
  evaluator->Run(Memory{frame.bases}, 0, evaluator->size());
}

// The cell of an index.
struct IndexCell {
  size_t dimension;  // of the rows
  program::RegisterType type;
};

// The cell of a number of a register type.
uint64_t BitsOf(int64_t number, program::RegisterType type) {
  if (type == program::RegisterType::kF32) {
    return std::bit_cast<uint32_t>(static_cast<float>(number));
  }
  if (type == program::RegisterType::kF64) {
    return std::bit_cast<uint64_t>(static_cast<double>(number));
  }
  return static_cast<uint64_t>(number);
}

DType ElementOf(program::RegisterType type) {
  switch (type) {
    case program::RegisterType::kF32:
      return DType::kF32;
    case program::RegisterType::kF64:
      return DType::kF64;
    case program::RegisterType::kI32:
      return DType::kI32;
    case program::RegisterType::kU32:
      return DType::kU32;
    case program::RegisterType::kI64:
      return DType::kI64;
    default:
      return DType::kU64;
  }
}

// Makes an index along one of the first dimensions an operand, and one within a
// row that of its dimensions. Returns the cells, whose dimensions are still the
// program's; nothing if an index within a row is not that of its element.
std::optional<std::vector<IndexCell>> TakeIndices(Evaluation& evaluation,
                                                  size_t first) {
  const std::vector<int64_t>& shape = evaluation.shape;
  int64_t length = 1;
  for (size_t d = first; d < shape.size(); ++d) length *= shape[d];
  std::vector<IndexCell> cells;
  for (program::Instruction& i : evaluation.code.code) {
    if (i.op != program::Opcode::kIota) continue;
    const auto d = static_cast<size_t>(i.imm);
    if (d >= first) {
      if (shape[d] != length) return std::nullopt;
      i.imm -= first;
      continue;
    }
    Operand operand;
    const DType dtype = ElementOf(i.type);
    operand.view = {kFirstCell + static_cast<uint32_t>(cells.size()),
                    0,
                    dtype,
                    ItemSize(dtype),
                    {},
                    {}};
    operand.dims.assign(shape.size(), -1);
    i.op = program::Opcode::kLoad;
    i.imm = evaluation.operands.size();
    evaluation.operands.push_back(std::move(operand));
    cells.push_back({d, i.type});
  }
  return cells;
}

class Rows final : public Evaluator {
 public:
  // `row` is a program that is one call.
  Rows(Prepared row, std::vector<RowDimension> dimensions,
       std::vector<uint32_t> bases, std::vector<IndexCell> cells)
      : row_(std::move(row)),
        plan_(row_.plan()),
        dimensions_(std::move(dimensions)),
        bases_(std::move(bases)),
        cells_(std::move(cells)),
        size_(row_.size) {
    for (const RowDimension& d : dimensions_) size_ *= d.extent;
    for (const Step& step : plan_.uniform_steps) {
      if (step.fn == LoadUniform && SourceOf(step).convert == nullptr &&
          SourceOf(step).width == 4) {
        const StridedIterator& at = SourceOf(step).iterator;
        words_.push_back({step.d, at.base(), at.offset()});
      } else {
        uniform_steps_.push_back(step);
      }
    }
  }

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    StackArray<char*, kFirst + kFewTensors> array(kFirst + bases_.size());
    char** const bases = array.get();
    std::fill_n(bases, kFirst, nullptr);
    StackArray<uint64_t, kFewCells> indices(cells_.size());
    for (size_t k = 0; k < bases_.size(); ++k) {
      bases[kFirst + k] =
          bases_[k] < kFirstCell
              ? memory.bases[bases_[k]]
              : reinterpret_cast<char*>(indices.get() + bases_[k] - kFirstCell);
    }
    int64_t index[program::kHighestRank];
    int64_t left = begin / row_.size;
    for (size_t d = dimensions_.size(); d-- > 0;) {
      index[d] = left % dimensions_[d].extent;
      left /= dimensions_[d].extent;
      Move(bases, dimensions_[d], index[d]);
    }
    OneCallSlots slots(plan_);
    for (int64_t at = begin % row_.size; begin < end; at = 0) {
      const int64_t count = std::min(row_.size - at, end - begin);
      for (size_t k = 0; k < cells_.size(); ++k) {
        indices.get()[k] = BitsOf(index[cells_[k].dimension], cells_[k].type);
      }
      RunRow(slots.get(), bases, at, count);
      begin += count;
      for (size_t d = dimensions_.size(); d-- > 0;) {
        Move(bases, dimensions_[d], 1);
        if (++index[d] < dimensions_[d].extent) break;
        Move(bases, dimensions_[d], -dimensions_[d].extent);
        index[d] = 0;
      }
    }
    // Orders stores that bypass the caches before what other threads do next.
    if (plan_.streams) _mm_sfence();
  }

  bool Record(Tape& tape) const override {
    tape.Call(RunRecorded, static_cast<const Evaluator*>(this));
    return true;
  }

  int64_t size() const override { return size_; }
  double nanoseconds() const override {
    return plan_.nanoseconds + kRowNanoseconds / static_cast<double>(row_.size);
  }
  int64_t grain() const override {
    if (plan_.group > 1) return row_.size;
    return std::min(row_.program.block(), row_.size);
  }

 private:
  // An element of 4 bytes that is the same for all of a row.
  struct Word {
    uint16_t slot;
    uint32_t base;
    int64_t offset;
  };

  void RunRow(char** slots, char* const* bases, int64_t at,
              int64_t count) const {
    for (const Word& word : words_) {
      uint32_t bits;
      std::memcpy(&bits, bases[word.base] + word.offset, sizeof bits);
      Store(slots[word.slot], Splat<Vector<uint32_t>>(bits));
    }
    const Frame uniform{slots, bases, nullptr, 0, kUniformLanes};
    for (const Step& step : uniform_steps_) step.fn(step, uniform);
    for (size_t j = 0; j < row_.destinations.size(); ++j) {
      const Output& output = plan_.outputs[j];
      slots[output.slot] =
          row_.destinations[j].iterator.Data(bases) + at * output.width;
    }
    const Step& call = plan_.steps[0];
    call.fn(call, Frame{slots, bases, nullptr, at, count});
  }

  void Move(char** bases, const RowDimension& d, int64_t by) const {
    for (size_t k = 0; k < bases_.size(); ++k) {
      bases[kFirst + k] += by * d.steps[k];
    }
  }

  const Prepared row_;
  const Plan& plan_;                            // of its program
  const std::vector<RowDimension> dimensions_;  // outermost first
  const std::vector<uint32_t> bases_;           // of the tensors of a row
  const std::vector<IndexCell> cells_;
  std::vector<Word> words_;
  std::vector<Step> uniform_steps_;  // the other ones
  int64_t size_;
};

}  // namespace

bool IsInRows(const Prepared& prepared) {
  const Plan& plan = prepared.plan();
  const auto copies = [](const Step& step) {
    return step.fn == LoadGather || step.fn == PointIntoRow ||
           TypeOfIota(step.fn);
  };
  return plan.row > 0 ||
         std::any_of(plan.steps.begin(), plan.steps.end(), copies) ||
         std::any_of(prepared.destinations.begin(), prepared.destinations.end(),
                     [](const Destination& d) { return !d.dense; });
}

std::unique_ptr<const Evaluator> MakeRows(Evaluation evaluation) {
  size_t first = 1;
  const size_t rank = evaluation.shape.size();
  while (first < rank && !IsRow(evaluation, first)) ++first;
  int64_t length = 1;
  for (size_t d = first; d < rank; ++d) length *= evaluation.shape[d];
  if (length < kFewestInRow || length * LeastBytes(evaluation) < kFewestBytes) {
    return nullptr;
  }

  // Within a row, nothing tells how large the other indices can be.
  program::NarrowIntegers(evaluation.code, evaluation.shape);
  auto cells = TakeIndices(evaluation, first);
  if (!cells) return nullptr;
  Evaluation row{evaluation.code, {}, {}, {}};
  row.shape.assign(evaluation.shape.begin() + first, evaluation.shape.end());
  std::vector<const Operand*> based;  // one of those that share a base
  for (const auto& [tensors, cut] :
       {std::pair{&evaluation.operands, &row.operands},
        std::pair{&evaluation.results, &row.results}}) {
    for (size_t k = 0; k < tensors->size(); ++k) {
      const Operand& tensor = (*tensors)[k];
      // Results that alternate share a base.
      if (k == 0 || !AreAlike((*tensors)[k - 1], tensor, first)) {
        based.push_back(&tensor);
      }
      cut->push_back(From(tensor, first));
      cut->back().view.base = kFirst + static_cast<uint32_t>(based.size() - 1);
    }
  }
  std::vector<RowDimension> dimensions;
  for (size_t d = 0; d < first; ++d) {
    if (evaluation.shape[d] == 1) continue;
    RowDimension dimension{evaluation.shape[d], {}, d};
    for (const Operand* tensor : based) {
      dimension.steps.push_back(tensor->Stride(d) * tensor->view.item_size);
    }
    dimensions.push_back(std::move(dimension));
  }
  // What one operand reads backwards, another one often reads forwards: then it
  // is still in the cache.
  std::stable_partition(
      dimensions.begin(), dimensions.end(), [](const RowDimension& d) {
        return std::all_of(d.steps.begin(), d.steps.end(),
                           [](int64_t step) { return step >= 0; });
      });
  auto prepared = Prepare(row);
  if (!prepared.ok() || !IsOneCall(*prepared)) return nullptr;
  for (IndexCell& cell : *cells) {
    const auto at = std::find_if(
        dimensions.begin(), dimensions.end(),
        [&](const RowDimension& d) { return d.dimension == cell.dimension; });
    if (at == dimensions.end()) return nullptr;  // its index is always 0
    cell.dimension = static_cast<size_t>(at - dimensions.begin());
  }
  std::vector<uint32_t> bases;
  for (const Operand* tensor : based) bases.push_back(tensor->view.base);
  return std::make_unique<Rows>(std::move(*prepared), std::move(dimensions),
                                std::move(bases), std::move(*cells));
}

}  // namespace ipu::model::IPU_SIMD_NS
