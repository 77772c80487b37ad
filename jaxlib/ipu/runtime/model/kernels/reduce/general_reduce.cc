#include "jaxlib/ipu/runtime/model/kernels/reduce/general_reduce.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/register_types.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/reduce_space.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::RegisterType;

constexpr int64_t kInitSize = 8;  // bytes per output in Reduce::init

// Totals are folded side by side, an element of each at a time, if there are at
// least so many of them or if each has fewer elements. Measured: of 4,096
// adjacent elements for each total, folding one total after the other takes an
// eighth to half as long for 2 to 256 totals (AVX2, one core), `python -m
// benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kFewest, 32);

using StoreFunction = void (*)(const char*, int64_t, DType, char*, int64_t);

// Stores register values as elements; null if the type cannot be stored so.
StoreFunction StoreOf(RegisterType type, DType dtype) {
  return WithRegister(type, [dtype]<typename T>(T) -> StoreFunction {
    using Run = RunOf<T>;
    if (StoreRunOf<Run>(dtype) == nullptr) return nullptr;
    return [](const char* from, int64_t n, DType to_dtype, char* to,
              int64_t stride) {
      StoreRunOf<Run>(to_dtype)(reinterpret_cast<const Run*>(from), n, to,
                                stride);
    };
  });
}

struct Output {
  View view;
  int64_t item_size;  // of the register type
  char init[kInitSize];
  StoreFunction store;
};

// Splits n elements into those at even and at odd indices. `even` may equal
// `from`.
template <typename Item>
void Deal(const char* from, int64_t n, char* even, char* odd) {
  const Item* elements = reinterpret_cast<const Item*>(from);
  for (int64_t i = 0; i < n / 2; ++i) {
    const Item first = elements[2 * i], second = elements[2 * i + 1];
    reinterpret_cast<Item*>(even)[i] = first;
    reinterpret_cast<Item*>(odd)[i] = second;
  }
  if (n % 2) reinterpret_cast<Item*>(even)[n / 2] = elements[n - 1];
}

class GeneralReduceKernel final : public Kernel {
 public:
  static KernelOr Make(const ComputeSet& set, const program::Reduce& fields);
  void Run(const Memory& memory, ThreadPool& threads) const override;

 private:
  GeneralReduceKernel(RegisterProgram program, RegisterProgram combine)
      : program_(std::move(program)), combine_(std::move(combine)) {}

  class Worker;

  RegisterProgram program_;
  RegisterProgram combine_;
  std::vector<Output> outputs_;
  std::vector<ReduceAxis> outer_;  // parallel axes
  ReduceAxis x_;                   // the innermost parallel axis
  int64_t kept_ = 1, reduced_ = 1;
  // True: vectorises over parallel points; the iteration order is (reduced,
  // parallel). False: combines neighbouring elements of one point; the
  // iteration order is (parallel, reduced).
  bool side_by_side_ = false;
};

KernelOr GeneralReduceKernel::Make(const ComputeSet& set,
                                   const program::Reduce& fields) {
  const size_t count = fields.outputs.size();
  if (count == 0 || set.results.size() != count ||
      fields.combine_outputs.size() != count ||
      fields.init.size() != count * kInitSize) {
    return InvalidArgument("A general Reduce of " + std::to_string(count) +
                           " values needs as many results, outputs of its "
                           "function and initial values.");
  }
  auto code = program::DecodeRegisterCode(
      fields.code, fields.outputs, set.operands.size(), set.shape.size());
  if (!code.ok()) return code.status();
  ReduceSpace space = MakeReduceSpace(set, fields.num_reduced, *code,
                                      LargestOperand(set), true);
  const int64_t kept = space.kept_size(), reduced = space.reduced_size();
  const bool side_by_side =
      reduced < kFewest ||
      (!space.kept.empty() && space.kept.back().extent >= kFewest);
  std::vector<ReduceAxis> order = side_by_side ? space.reduced : space.kept;
  const auto& rest = side_by_side ? space.kept : space.reduced;
  order.insert(order.end(), rest.begin(), rest.end());
  auto program = MakeReduceProgram(set, order, std::move(*code));
  if (!program.ok()) return program.status();
  auto combine = RegisterProgram::MakeFunction(
      fields.combine, fields.combine_outputs, 2 * count);
  if (!combine.ok()) return combine.status();

  std::unique_ptr<GeneralReduceKernel> kernel(
      new GeneralReduceKernel(std::move(*program), std::move(*combine)));
  for (size_t j = 0; j < count; ++j) {
    const RegisterType type = kernel->program_.output_type(j);
    const View& view = set.results[j].view;
    Output output = {.view = view,
                     .item_size = program::RegisterBytes(type),
                     .init = {},
                     .store = StoreOf(type, view.dtype)};
    if (output.store == nullptr || kernel->combine_.output_type(j) != type) {
      return InvalidArgument("Output " + std::to_string(j) +
                             " of a general Reduce changes its type between "
                             "operand and result.");
    }
    std::memcpy(output.init, fields.init.data() + j * kInitSize, kInitSize);
    kernel->outputs_.push_back(output);
  }
  kernel->kept_ = kept;
  kernel->reduced_ = reduced;
  kernel->side_by_side_ = side_by_side;
  kernel->x_.results.assign(count, 1);
  if (!space.kept.empty()) {
    kernel->x_ = std::move(space.kept.back());
    space.kept.pop_back();
  }
  kernel->outer_ = std::move(space.kept);
  return KernelOr(std::move(kernel));
}

// The accumulators and scratch memory of one thread.
class GeneralReduceKernel::Worker {
 public:
  Worker(const GeneralReduceKernel& kernel, const Memory& memory)
      : k_(kernel),
        memory_(memory),
        state_(kernel.program_, memory),
        combine_state_(kernel.combine_),
        count_(kernel.outputs_.size()),
        block_(std::max<int64_t>(kernel.program_.block(), 1)) {
    // Accumulators, then elements at even and at odd indices.
    char* at = scratch_.Get<char>(3 * count_ * block_ * 8);
    for (size_t i = 0; i < 3 * count_; ++i) {
      buffers_.push_back(at + i * block_ * 8);
    }
    values_.resize(count_);
    operands_.resize(2 * count_);
  }

  int64_t block() const { return block_; }

  // Reduces the points [begin, end) along x, at most a block, at one index of
  // the outer parallel axes.
  void Reduce(int64_t outer, int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    for (size_t j = 0; j < count_; ++j) {
      const int64_t size = k_.outputs_[j].item_size;
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(buffers_[j] + i * size, k_.outputs_[j].init, size);
      }
    }
    const int64_t point = outer * k_.x_.extent + begin;
    if (k_.side_by_side_) {
      for (int64_t r = 0; r < k_.reduced_; ++r) {
        Eval(r * k_.kept_ + point, n);
        Combine(buffers_.data(), values_.data(), n);
      }
    } else {
      Neighbours(point);
    }
    for (size_t j = 0; j < count_; ++j) {
      const Output& output = k_.outputs_[j];
      const int64_t at =
          ResultOffset(k_.outer_, j, outer) + begin * k_.x_.results[j];
      output.store(buffers_[j], n, output.view.dtype,
                   output.view.Data(memory_) + at * output.view.item_size,
                   k_.x_.results[j]);
    }
  }

 private:
  void Eval(int64_t begin, int64_t n) {
    std::fill(values_.begin(), values_.end(), nullptr);
    k_.program_.Eval(state_, begin, n, values_.data());
  }

  // left = combine(left, right), elementwise.
  template <typename Right>
  void Combine(char* const* left, Right* right, int64_t n) {
    std::copy_n(left, count_, operands_.begin());
    std::copy_n(right, count_, operands_.begin() + count_);
    outs_.assign(left, left + count_);
    k_.combine_.Call(combine_state_, operands_.data(), outs_.data(), n);
  }

  // Combines each element with its right neighbour, repeatedly, until one
  // element is left.
  void Neighbours(int64_t point) {
    char* const* even = buffers_.data() + count_;
    char* const* odd = even + count_;
    for (int64_t r = 0; r < k_.reduced_; r += block_) {
      int64_t n = std::min(block_, k_.reduced_ - r);
      Eval(point * k_.reduced_ + r, n);
      for (bool first = true; first || n > 1; first = false) {
        for (size_t j = 0; j < count_; ++j) {
          const char* from =
              first ? static_cast<const char*>(values_[j]) : even[j];
          (k_.outputs_[j].item_size == 8
               ? Deal<uint64_t>
               : Deal<uint32_t>)(from, n, even[j], odd[j]);
        }
        if (n > 1) Combine(even, odd, n / 2);
        n = n / 2 + n % 2;
      }
      Combine(buffers_.data(), even, 1);
    }
  }

  const GeneralReduceKernel& k_;
  const Memory& memory_;
  RegisterProgram::State state_;
  RegisterProgram::State combine_state_;
  const size_t count_;
  const int64_t block_;
  Scratch scratch_;
  std::vector<char*> buffers_;
  std::vector<void*> values_;
  std::vector<const void*> operands_;
  std::vector<void*> outs_;
};

void GeneralReduceKernel::Run(const Memory& memory, ThreadPool& threads) const {
  if (kept_ == 0) return;
  const int64_t most = side_by_side_ ? program_.block() : 1;
  const int64_t share =
      std::max<int64_t>(kept_ / (4 * int64_t{threads.threads()}), 1);
  const int64_t block = std::max<int64_t>(
      1, std::min({most, x_.extent, std::max<int64_t>(share, 64)}));
  const int64_t blocks = (x_.extent + block - 1) / block;
  const int64_t pieces = kept_ / x_.extent * blocks;
  const double each =
      (program_.nanoseconds() + combine_.nanoseconds()) * reduced_ * block;
  const int64_t grain = 8000 / (each + 1);
  threads.For(pieces, std::max<int64_t>(grain, 1),
              [&](int64_t begin, int64_t end) {
                Worker worker(*this, memory);
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t x = i % blocks * block;
                  worker.Reduce(i / blocks, x, std::min(x_.extent, x + block));
                }
              });
}

}  // namespace

KernelOr MakeGeneralReduce(const ComputeSet& set,
                           const program::Reduce& fields) {
  return GeneralReduceKernel::Make(set, fields);
}

}  // namespace ipu::model::IPU_SIMD_NS
