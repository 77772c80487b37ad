// The kernel of Map: a register program over the iteration space.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/register_simplify.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

// Maps that take less time than kWorthThreads run on one thread; each chunk of
// a parallel map takes at least kGrain. Both are a guess: they depend on how
// soon a machine's threads wake.
constexpr double kWorthThreads = 12'000;  // nanoseconds
constexpr double kGrain = 4'000;

// The size of a block of converted elements, which have at most 16 bits.
constexpr size_t kStagingBytes = (kLongestBlock * 2) + kSlackBytes;

// Maps with more results than this allocate memory in each run; a guess.
constexpr size_t kFewResults = 16;

// A map that runs without a state has at most this many slots, and owns at most
// this many of them; a guess: they are on the stack.
constexpr size_t kFewSlots = 64;
constexpr size_t kFewCells = 16;

// The destination of an output.
struct Destination {
  StridedIterator iterator;
  DType dtype;
  ConvertFn convert;  // null if register values are stored unchanged
  uint32_t item_size;
  bool dense;
  bool direct() const { return dense && convert == nullptr; }
};

// A map of a few elements, which is recorded on a tape as several maps of one
// element. Values then stay in registers between this map and those that slice
// and stack them, whereas a vector load would wait for the stores of its
// elements.
struct ShortMap {
  // Larger maps use vectors; a guess: an f32 vector has four or more elements.
  static constexpr int64_t kMost = 4;

  program::RegisterCode code;
  std::vector<int64_t> shape;
  std::vector<Operand> operands, results;

  // Whether every instruction maps to one or a few machine instructions.
  static bool Fits(const program::RegisterCode& code, int64_t size) {
    return size > 1 && size <= kMost &&
           std::all_of(code.code.begin(), code.code.end(),
                       [](const program::Instruction& i) {
                         return i.op == program::Opcode::kLoad ||
                                i.op == program::Opcode::kConst || IsNative(i);
                       });
  }

  // The tensors restricted to the element at a flat index.
  std::vector<Operand> At(std::vector<Operand> tensors, int64_t index) const {
    for (size_t d = shape.size(); d-- > 0; index /= shape[d]) {
      for (Operand& o : tensors) {
        o.view.offset += index % shape[d] * o.Stride(d) * o.view.item_size;
      }
    }
    return tensors;
  }

  bool Record(Tape& tape) const {
    int64_t size = 1;
    for (int64_t extent : shape) size *= extent;
    std::vector<RegisterProgram> programs;
    size_t slots = 0;
    for (int64_t i = 0; i < size; ++i) {
      const std::vector<Operand> to = At(results, i);
      auto program = RegisterProgram::Make(
          code, std::vector<int64_t>(shape.size(), 1), At(operands, i), &to);
      if (!program.ok()) return false;
      slots += program->plan().num_slots + 2 * to.size();
      programs.push_back(std::move(*program));
    }
    if (!tape.HasRoom(slots)) return false;
    for (int64_t i = 0; i < size; ++i) {
      std::vector<ItemStore> stores;
      for (const Operand& to : At(results, i)) {
        const bool as_is = programs[i].stores_elements(stores.size()) ||
                           FindStore(to.view.dtype) == nullptr;
        stores.push_back({{to.view.base, to.view.offset, to.view.item_size},
                          as_is ? DType::kNone : to.view.dtype});
      }
      tape.Evaluate(programs[i].plan(), stores);
      tape.Keep(std::move(programs[i]));
    }
    return true;
  }
};

class MapKernel : public Kernel {
 public:
  // `few` is null unless the map has 2 to ShortMap::kMost elements.
  MapKernel(RegisterProgram program, std::vector<Destination> destinations,
            int64_t size, std::unique_ptr<const ShortMap> few)
      : program_(std::move(program)),
        destinations_(std::move(destinations)),
        size_(size),
        few_(std::move(few)) {
    double nanoseconds = program_.nanoseconds();
    for (const Destination& d : destinations_) {
      nanoseconds += (d.dense ? 0.02 : 0.2) * d.item_size;
    }
    const int64_t block = program_.block();
    const double elements = kGrain / std::max(nanoseconds, 0.01);
    const int64_t unit = std::max(block, program_.grain());
    grain_ = std::max<int64_t>(1, static_cast<int64_t>(elements) / unit) * unit;
    inline_ = nanoseconds * static_cast<double>(size) < kWorthThreads;
    is_native_ = IsNative();
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    if (size_ == 1) return RunOne(memory);
    if (is_native_ && inline_) return RunNative(memory.bases, 0, size_);
    if (inline_) return RunRange(memory, 0, size_);
    threads.For(size_, grain_, [&](int64_t begin, int64_t end) {
      RunRange(memory, begin, end);
    });
  }

  bool Record(model::Tape& tape) const override {
    Tape& to = static_cast<Tape&>(tape);
    if (few_ != nullptr && few_->Record(to)) return true;
    if (is_native_ && inline_) return RecordNative(to);
    if (size_ != 1) {
      if (inline_) to.Call(RunRecorded, this);
      return inline_;
    }
    std::vector<ItemStore> stores;
    for (const Destination& d : destinations_) {
      stores.push_back({ItemOf(d), d.convert ? d.dtype : DType::kNone});
    }
    return to.Evaluate(program_.plan(), stores);
  }

 private:
  // Whether a run is a single call of machine code that reads operands and
  // writes results in place, and so needs no state.
  bool IsNative() const {
    const Plan& plan = program_.plan();
    return plan.native.size() == 1 && plan.steps.size() == 1 && plan.row == 0 &&
           plan.num_slots <= kFewSlots && plan.offsets.size() <= kFewCells &&
           std::all_of(
               plan.outputs.begin(), plan.outputs.end(),
               [](const Output& o) { return o.way == Output::kDirect; }) &&
           std::all_of(destinations_.begin(), destinations_.end(),
                       [](const Destination& d) { return d.direct(); });
  }

  void RunNative(char* const* bases, int64_t begin, int64_t end) const {
    const Plan& plan = program_.plan();
    char* slots[kFewSlots];
    alignas(64) char cells[kFewCells * kUniformBytes];
    size_t k = 0;
    for (; k < plan.offsets.size(); ++k) slots[k] = cells + k * kUniformBytes;
    for (const Cell& cell : plan.constants) {
      slots[k++] = const_cast<char*>(cell.bytes);
    }
    const Frame uniform{slots, bases, nullptr, 0, kUniformLanes};
    for (const Step& step : plan.uniform_steps) step.fn(step, uniform);
    for (size_t j = 0; j < destinations_.size(); ++j) {
      const Output& output = plan.outputs[j];
      slots[output.slot] =
          destinations_[j].iterator.Data(bases) + begin * output.width;
    }
    const Step& step = plan.steps[0];
    step.fn(step, Frame{slots, bases, nullptr, begin, end - begin});
  }

  Item ItemOf(const Destination& d) const {
    const auto elements = static_cast<uint32_t>(size_);
    return {d.iterator.base(), d.iterator.offset(), d.item_size * elements};
  }

  // A map without uniform values and slots of its own needs no set-up, so its
  // code is recorded directly.
  bool RecordNative(Tape& tape) const {
    const Plan& plan = program_.plan();
    const std::vector<uint16_t>& used = plan.native[0].slots;
    const bool owns = std::any_of(used.begin(), used.end(), [&](uint16_t slot) {
      return slot < plan.offsets.size();
    });
    if (owns || !plan.uniform_steps.empty()) {
      tape.Call(RunRecorded, this);
      return true;
    }
    std::vector<Item> outputs;
    for (const Destination& d : destinations_) outputs.push_back(ItemOf(d));
    return tape.Run(plan, outputs, static_cast<uint32_t>(size_));
  }

  static void RunRecorded(const Step& s, const Frame& f) {
    const auto* map = static_cast<const MapKernel*>(PayloadOf<const void*>(s));
    map->RunRange(Memory{f.bases}, 0, map->size_);
  }

  void RunOne(const Memory& memory) const {
    if (destinations_.size() > kFewResults) [[unlikely]] {
      std::vector<uint64_t> values(destinations_.size());
      return RunOne(memory, values.data());
    }
    uint64_t values[kFewResults];
    RunOne(memory, values);
  }

  // Computes all values before storing any, because results may be operands.
  void RunOne(const Memory& memory, uint64_t* values) const {
    program_.EvalOne(memory, values);
    for (size_t j = 0; j < destinations_.size(); ++j) {
      const Destination& d = destinations_[j];
      char* const to = d.iterator.Data(memory.bases);
      if (d.convert != nullptr) {
        d.convert(values + j, to, 1);
      } else if (d.item_size == 4) {
        std::memcpy(to, values + j, 4);
      } else {
        std::memcpy(to, values + j, 8);
      }
    }
  }

  void RunRange(const Memory& memory, int64_t begin, int64_t end) const {
    if (is_native_) return RunNative(memory.bases, begin, end);
    void* few[kFewResults];
    std::vector<void*> many;
    void** outs = few;
    if (destinations_.size() > kFewResults) [[unlikely]] {
      many.resize(destinations_.size());
      outs = many.data();
    }
    RegisterProgram::State state(program_, memory);
    const int64_t block = program_.block();
    for (int64_t at = begin; at < end; at += block) {
      const int64_t n = std::min(block, end - at);
      for (size_t j = 0; j < destinations_.size(); ++j) {
        const Destination& d = destinations_[j];
        outs[j] = d.direct() ? d.iterator.Data(memory.bases) + at * d.item_size
                             : nullptr;
      }
      program_.Eval(state, at, n, outs);
      for (size_t j = 0; j < destinations_.size(); ++j) {
        if (!destinations_[j].direct()) {
          Put(destinations_[j], memory, at, n, outs[j]);
        }
      }
    }
  }

  static void Put(const Destination& d, const Memory& memory, int64_t at,
                  int64_t n, const void* values) {
    char* data = d.iterator.Data(memory.bases);
    if (d.dense) return d.convert(values, data + at * d.item_size, n);
    alignas(64) char staging[kStagingBytes];
    if (d.convert != nullptr) {
      d.convert(values, staging, n);
      values = staging;
    }
    d.iterator.Scatter(data, at, n, static_cast<const char*>(values));
  }

  RegisterProgram program_;
  std::vector<Destination> destinations_;
  int64_t size_;
  std::unique_ptr<const ShortMap> few_;
  int64_t grain_;
  bool inline_;
  bool is_native_;
};

class EmptyKernel : public Kernel {
 public:
  void Run(const Memory&, ThreadPool&) const override {}
};

// The iteration dimensions sorted by the strides of the first result, so that
// elements that are dense there in another order become one run.
std::vector<size_t> MemoryOrder(const ComputeSet& compute_set) {
  std::vector<size_t> order(compute_set.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const Operand& guide = compute_set.results[0];
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(guide.Stride(a)) > std::abs(guide.Stride(b));
  });
  return order;
}

template <typename T>
std::vector<T> Permuted(const std::vector<T>& values,
                        const std::vector<size_t>& order) {
  std::vector<T> result;
  for (size_t d : order) result.push_back(values[d]);
  return result;
}

std::vector<Operand> Permuted(std::vector<Operand> operands,
                              const std::vector<size_t>& order) {
  for (Operand& operand : operands) {
    operand.dims = Permuted(operand.dims, order);
  }
  return operands;
}

void PermuteIotas(program::RegisterCode& code,
                  const std::vector<size_t>& order) {
  for (program::Instruction& i : code.code) {
    if (i.op != program::Opcode::kIota) continue;
    i.imm = std::find(order.begin(), order.end(), i.imm) - order.begin();
  }
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& compute_set, const program::Map& fields) {
  if (fields.outputs.size() != compute_set.results.size() ||
      fields.outputs.empty()) {
    return DataLoss("malformed Map: " + std::to_string(fields.outputs.size()) +
                    " outputs for " +
                    std::to_string(compute_set.results.size()) + " results");
  }
  auto code = program::DecodeRegisterCode(fields.code, fields.outputs,
                                          compute_set.operands.size(),
                                          compute_set.shape.size());
  if (!code.ok()) return code.status();

  const std::vector<size_t> order = MemoryOrder(compute_set);
  const std::vector<int64_t> shape = Permuted(compute_set.shape, order);
  const auto operands = Permuted(compute_set.operands, order);
  const auto results = Permuted(compute_set.results, order);
  PermuteIotas(*code, order);

  std::vector<Destination> destinations;
  std::vector<DType> dtypes;
  for (size_t j = 0; j < results.size(); ++j) {
    const View& view = results[j].view;
    const auto type = program::ResultType(code->code[code->outputs[j]]);
    if (program::RegisterTypeOf(view.dtype) != type) {
      return DataLoss(
          "malformed Map: output " + std::to_string(j) + " of register type " +
          std::to_string(static_cast<int>(type)) +
          " is stored as element type " + std::to_string(Number(view.dtype)));
    }
    StridedIterator iterator(shape, results[j]);
    const bool dense = iterator.dense();
    destinations.push_back({std::move(iterator), view.dtype,
                            FindStore(view.dtype), view.item_size, dense});
    dtypes.push_back(view.dtype);
  }
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  if (size == 0) return {std::make_unique<EmptyKernel>()};

  program::LeaveRoundingToStores(*code, dtypes);
  std::unique_ptr<ShortMap> few;
  if (ShortMap::Fits(*code, size)) {
    few = std::make_unique<ShortMap>(ShortMap{*code, shape, operands, results});
  }
  auto program =
      RegisterProgram::Make(std::move(*code), shape, operands, &results);
  if (!program.ok()) return program.status();
  for (size_t j = 0; j < destinations.size(); ++j) {
    if (program->stores_elements(j)) destinations[j].convert = nullptr;
  }
  return {std::make_unique<MapKernel>(
      std::move(*program), std::move(destinations), size, std::move(few))};
}

}  // namespace ipu::model::IPU_SIMD_NS
