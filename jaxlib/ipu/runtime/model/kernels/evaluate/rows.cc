#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Runs a program row by row. Within a row, each tensor is in one piece or one
// element, so that one call of machine code reads and writes all of them in
// place.

// The time of a row's call; a guess.
constexpr double kRowNanoseconds = 20;
// Measured (f32, AVX-512, one core; 2^18 elements): with rows of 256, of a
// matrix minus a column, of a slice, and of numbers rotated in the plane,
// blocks take 35, 46 and 43 us, rows 26, 38 and 32. With rows of 128 it is 30,
// 43 and 43 against 38, 40 and 43.
constexpr int64_t kFewestInRow = 256;

// Programs of more tensors than this (a guess) allocate memory in each run.
constexpr size_t kFewTensors = 16;

// The first base of a row's tensors. Each has one, so that a row expects that
// any two may share storage.
constexpr uint32_t kFirst = kFirstArgumentBase;
static_assert(MayAlias(kFirst, kFirst + 1));

// A dimension along which rows follow each other.
struct RowDimension {
  int64_t extent;
  std::vector<int64_t> steps;  // bytes of each tensor
};

// A tensor without its first dimensions.
Operand From(Operand tensor, size_t first) {
  tensor.dims.erase(tensor.dims.begin(),
                    tensor.dims.begin() + static_cast<std::ptrdiff_t>(first));
  return tensor;
}

// Whether all tensors are in one piece, or one element, over the dimensions
// from `first` on.
bool IsRow(const Evaluation& evaluation, size_t first) {
  const std::vector<int64_t> shape(evaluation.shape.begin() + first,
                                   evaluation.shape.end());
  const auto dense = [&](const Operand& tensor) {
    return StridedIterator(shape, From(tensor, first)).dense();
  };
  return std::all_of(
             evaluation.operands.begin(), evaluation.operands.end(),
             [&](const Operand& tensor) {
               return dense(tensor) ||
                      StridedIterator(shape, From(tensor, first)).uniform();
             }) &&
         std::all_of(evaluation.results.begin(), evaluation.results.end(),
                     dense);
}

void RunRecorded(const Step& step, const Frame& frame) {
  const auto* evaluator =
      static_cast<const Evaluator*>(PayloadOf<const void*>(step));
  evaluator->Run(Memory{frame.bases}, 0, evaluator->size());
}

class Rows final : public Evaluator {
 public:
  Rows(std::unique_ptr<const Evaluator> row,
       std::vector<RowDimension> dimensions, std::vector<uint32_t> bases)
      : row_(std::move(row)),
        dimensions_(std::move(dimensions)),
        bases_(std::move(bases)),
        size_(row_->size()) {
    for (const RowDimension& d : dimensions_) size_ *= d.extent;
  }

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    StackArray<char*, kFirst + kFewTensors> array(kFirst + bases_.size());
    char** const bases = array.get();
    std::fill_n(bases, kFirst, nullptr);
    for (size_t k = 0; k < bases_.size(); ++k) {
      bases[kFirst + k] = memory.bases[bases_[k]];
    }
    int64_t index[program::kHighestRank];
    const int64_t length = row_->size();
    int64_t left = begin / length;
    for (size_t d = dimensions_.size(); d-- > 0;) {
      index[d] = left % dimensions_[d].extent;
      left /= dimensions_[d].extent;
      Move(bases, dimensions_[d], index[d]);
    }
    for (int64_t at = begin % length; begin < end; at = 0) {
      const int64_t count = std::min(length - at, end - begin);
      row_->Run(Memory{bases}, at, at + count);
      begin += count;
      for (size_t d = dimensions_.size(); d-- > 0;) {
        Move(bases, dimensions_[d], 1);
        if (++index[d] < dimensions_[d].extent) break;
        Move(bases, dimensions_[d], -dimensions_[d].extent);
        index[d] = 0;
      }
    }
  }

  bool Record(Tape& tape) const override {
    tape.Call(RunRecorded, static_cast<const Evaluator*>(this));
    return true;
  }

  int64_t size() const override { return size_; }
  double nanoseconds() const override {
    return row_->nanoseconds() +
           kRowNanoseconds / static_cast<double>(row_->size());
  }
  int64_t grain() const override {
    return std::min(row_->grain(), row_->size());
  }

 private:
  void Move(char** bases, const RowDimension& d, int64_t by) const {
    for (size_t k = 0; k < bases_.size(); ++k) {
      bases[kFirst + k] += by * d.steps[k];
    }
  }

  const std::unique_ptr<const Evaluator> row_;
  const std::vector<RowDimension> dimensions_;  // outermost first
  const std::vector<uint32_t> bases_;           // of the tensors
  int64_t size_;
};

}  // namespace

bool CopiesElements(const Prepared& prepared) {
  const Plan& plan = prepared.plan();
  const auto copies = [](const Step& step) {
    return step.fn == LoadGather || step.fn == PointIntoRow;
  };
  return std::any_of(plan.steps.begin(), plan.steps.end(), copies) ||
         std::any_of(prepared.destinations.begin(), prepared.destinations.end(),
                     [](const Destination& d) { return !d.dense; });
}

std::unique_ptr<const Evaluator> MakeRows(const Evaluation& evaluation) {
  const std::vector<program::Instruction>& code = evaluation.code.code;
  if (std::any_of(code.begin(), code.end(), [](const program::Instruction& i) {
        return i.op == program::Opcode::kIota;
      })) {
    return nullptr;
  }
  size_t first = 1;
  const size_t rank = evaluation.shape.size();
  while (first < rank && !IsRow(evaluation, first)) ++first;
  int64_t length = 1;
  for (size_t d = first; d < rank; ++d) length *= evaluation.shape[d];
  if (length < kFewestInRow) return nullptr;

  Evaluation row{evaluation.code, {}, {}, {}};
  row.shape.assign(evaluation.shape.begin() + first, evaluation.shape.end());
  std::vector<uint32_t> bases;
  for (const auto& [tensors, cut] :
       {std::pair{&evaluation.operands, &row.operands},
        std::pair{&evaluation.results, &row.results}}) {
    for (const Operand& tensor : *tensors) {
      cut->push_back(From(tensor, first));
      cut->back().view.base = kFirst + static_cast<uint32_t>(bases.size());
      bases.push_back(tensor.view.base);
    }
  }
  std::vector<RowDimension> dimensions;
  for (size_t d = 0; d < first; ++d) {
    if (evaluation.shape[d] == 1) continue;
    RowDimension dimension{evaluation.shape[d], {}};
    for (const auto* tensors : {&evaluation.operands, &evaluation.results}) {
      for (const Operand& tensor : *tensors) {
        dimension.steps.push_back(tensor.Stride(d) * tensor.view.item_size);
      }
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
  return std::make_unique<Rows>(MakeOneCall(std::move(*prepared)),
                                std::move(dimensions), std::move(bases));
}

}  // namespace ipu::model::IPU_SIMD_NS
