#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/register_program/register_plan.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Stores n copies of the value at the start of `cell`.
void Fill(void* to, const char* cell, uint32_t width, int64_t n) {
  if (width == 4) {
    uint32_t bits;
    std::memcpy(&bits, cell, sizeof bits);
    std::fill_n(static_cast<uint32_t*>(to), n, bits);
  } else {
    uint64_t bits;
    std::memcpy(&bits, cell, sizeof bits);
    std::fill_n(static_cast<uint64_t*>(to), n, bits);
  }
}

// The memory of this thread's last large state, kept for the next one.
thread_local std::unique_ptr<char[], Free> spare;
thread_local size_t spare_bytes = 0;

}  // namespace

struct RegisterProgram::Impl : Plan {};

RegisterProgram::RegisterProgram(std::unique_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}
RegisterProgram::RegisterProgram(RegisterProgram&&) noexcept = default;
RegisterProgram& RegisterProgram::operator=(RegisterProgram&&) noexcept =
    default;
RegisterProgram::~RegisterProgram() = default;

StatusOr<RegisterProgram> RegisterProgram::Make(
    program::RegisterCode code, const std::vector<int64_t>& shape,
    const std::vector<Operand>& operands, const std::vector<Operand>* results) {
  auto impl = std::make_unique<Impl>();
  IPU_RETURN_IF_ERROR(MakePlan(std::move(code),
                               {shape, &operands, operands.size(), results},
                               impl.get()));
  return RegisterProgram(std::move(impl));
}

StatusOr<RegisterProgram> RegisterProgram::MakeFunction(
    const std::string& code, const std::vector<uint16_t>& outputs,
    size_t num_operands) {
  auto decoded = program::DecodeRegisterCode(code, outputs, num_operands, 0);
  if (!decoded.ok()) return decoded.status();
  auto impl = std::make_unique<Impl>();
  IPU_RETURN_IF_ERROR(MakePlan(
      std::move(*decoded), {{}, nullptr, num_operands, nullptr}, impl.get()));
  return RegisterProgram(std::move(impl));
}

const Plan& RegisterProgram::plan() const { return *impl_; }
size_t RegisterProgram::num_outputs() const { return impl_->outputs.size(); }
program::RegisterType RegisterProgram::output_type(size_t j) const {
  return impl_->outputs[j].type;
}
bool RegisterProgram::stores_elements(size_t j) const {
  return impl_->outputs[j].elements;
}
int64_t RegisterProgram::grain() const { return impl_->grain; }
int64_t RegisterProgram::block() const { return impl_->block; }
double RegisterProgram::nanoseconds() const { return impl_->nanoseconds; }

RegisterProgram::State::State(const RegisterProgram& program,
                              const Memory& memory)
    : bases_(memory.bases) {
  Bind(*program.impl_);
}

RegisterProgram::State::State(const RegisterProgram& program)
    : bases_(nullptr) {
  Bind(*program.impl_);
}

RegisterProgram::State::~State() {
  if (large_ == nullptr || large_bytes_ < spare_bytes) return;
  spare = std::move(large_);
  spare_bytes = large_bytes_;
}

void RegisterProgram::State::Bind(const Impl& plan) {
  char* memory = bytes_;
  if (plan.bytes > sizeof bytes_) [[unlikely]] {
    if (spare_bytes < plan.bytes) {
      spare_bytes = 0;
      spare.reset(static_cast<char*>(std::aligned_alloc(64, plan.bytes)));
      if (spare == nullptr) throw std::bad_alloc();
      spare_bytes = plan.bytes;
    }
    large_ = std::move(spare);
    large_bytes_ = std::exchange(spare_bytes, 0);
    memory = large_.get();
  }
  slots_ = reinterpret_cast<char**>(memory);
  staging_ = memory + plan.staging;
  char** slot = slots_;
  for (size_t offset : plan.offsets) *slot++ = memory + offset;
  for (const Cell& cell : plan.constants) {
    *slot++ = const_cast<char*>(cell.bytes);
  }
  const int64_t lanes = plan.size == 1 ? 1 : kUniformLanes;
  const Frame frame{slots_, bases_, staging_, 0, lanes};
  for (const Step& step : plan.uniform_steps) step.fn(step, frame);
  for (const Source& source : plan.sources) {
    if (source.pattern) {
      FillPattern(source, frame,
                  std::min(source.period + plan.block, plan.size), plan.block);
    }
    if (source.panel_rows > 0) new (slots_[source.panel]) PanelHeader();
  }
}

void RegisterProgram::Run(State& state, const void* const* operands,
                          int64_t begin, int64_t count, void** outs) const {
  const Plan& plan = *impl_;
  char** slots = state.slots_;
  Frame frame{slots, state.bases_, state.staging_, begin, 0};
  const auto target = [&](size_t j) {
    const Output& output = plan.outputs[j];
    char* const to = outs[j] ? static_cast<char*>(outs[j]) : slots[output.home];
    return to + (frame.begin - begin) * output.width;
  };
  const size_t num_outputs = plan.outputs.size();
  int64_t in_row = plan.row > 0 ? begin % plan.row : 0;
  for (; count > 0; count -= frame.count, frame.begin += frame.count) {
    frame.count = std::min(count, plan.block);
    if (plan.row > 0) {
      frame.count = std::min(frame.count, plan.row - in_row);
      in_row += frame.count;
      if (in_row == plan.row) in_row = 0;
      const Frame row{slots, state.bases_, nullptr, frame.begin, kUniformLanes};
      for (const Step& step : plan.row_steps) step.fn(step, row);
    }
    for (const BlockOperand& operand : plan.block_operands) {
      slots[operand.slot] = const_cast<char*>(static_cast<const char*>(
                                operands[operand.operand])) +
                            frame.begin * operand.width;
    }
    for (size_t j = 0; j < num_outputs; ++j) {
      const Output& output = plan.outputs[j];
      if (output.way == Output::kDirect) slots[output.slot] = target(j);
    }
    for (const Step& step : plan.steps) step.fn(step, frame);
    for (size_t j = 0; j < num_outputs; ++j) {
      const Output& output = plan.outputs[j];
      if (output.way == Output::kUniform) {
        Fill(target(j), slots[output.slot], output.width, frame.count);
      } else if (output.way == Output::kCopied && (outs[j] || plan.row > 0)) {
        std::memmove(target(j), slots[output.slot], frame.count * output.width);
      }
    }
  }
  for (size_t j = 0; j < num_outputs; ++j) {
    if (outs[j] != nullptr) continue;
    const Output& output = plan.outputs[j];
    const bool apart = output.way == Output::kCopied && plan.row == 0;
    outs[j] = slots[apart ? output.slot : output.home];
  }
}

void RegisterProgram::Eval(State& state, int64_t begin, int64_t count,
                           void** outs) const {
  Run(state, nullptr, begin, count, outs);
}

void RegisterProgram::Call(State& state, const void* const* operands,
                           void* const* outs, int64_t count) const {
  // None of them is null, so Run does not change them.
  Run(state, operands, 0, count, const_cast<void**>(outs));
}

}  // namespace ipu::model::IPU_SIMD_NS
