#include "jaxlib/ipu/runtime/program/register_narrow.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/program/register_simplify.h"

namespace ipu::program {
namespace {

constexpr uint64_t kHighest = std::numeric_limits<uint32_t>::max();

bool IsWide(RegisterType type) {
  return type == RegisterType::kI64 || type == RegisterType::kU64;
}
bool IsNarrow(RegisterType type) {
  return type == RegisterType::kI32 || type == RegisterType::kU32;
}

class Narrower {
 public:
  Narrower(RegisterCode& program, const std::vector<int64_t>& shape)
      : program_(program), shape_(shape) {}

  void Run() {
    std::vector<uint16_t> renamed;  // by previous number
    for (Instruction i : program_.code) {
      for (uint16_t& value : i.operands()) value = renamed[value];
      renamed.push_back(Cut(i));
    }
    program_.code = std::move(code_);
    for (uint16_t& value : program_.outputs) value = renamed[value];
  }

 private:
  // The same value in 32 bits, which is at most `highest`.
  struct Twin {
    uint16_t value;
    uint64_t highest;
  };

  uint16_t Add(const Instruction& i) {
    code_.push_back(i);
    twins_.emplace_back();
    return static_cast<uint16_t>(code_.size() - 1);
  }
  uint16_t AddNarrow(Opcode op, uint16_t a, uint16_t b, uint64_t imm) {
    return Add({op, RegisterType::kU32, {a, b}, imm});
  }

  // Adds an instruction, or finds a value that is its result.
  uint16_t Cut(const Instruction& i) {
    if (i.op == Opcode::kConvert && IsNarrow(i.type) && IsWide(TypeBefore(i)) &&
        twins_[i.values[0]]) {
      const uint16_t twin = twins_[i.values[0]]->value;
      if (i.type == RegisterType::kU32) return twin;
      return Add({Opcode::kBitcast,
                  i.type,
                  {twin, static_cast<uint16_t>(RegisterType::kU32)},
                  0});
    }
    const std::optional<Twin> twin = TwinOf(i);
    const uint16_t value = Add(i);
    twins_[value] = twin;
    return value;
  }

  std::optional<Twin> TwinOf(const Instruction& i) {
    if (!IsWide(i.type)) return std::nullopt;
    if (i.op == Opcode::kConst && i.imm <= kHighest) {
      return Twin{AddNarrow(i.op, 0, 0, i.imm), i.imm};
    }
    if (i.op == Opcode::kIota) {
      const auto highest =
          static_cast<uint64_t>(std::max<int64_t>(shape_[i.imm] - 1, 0));
      if (highest > kHighest) return std::nullopt;
      return Twin{AddNarrow(i.op, 0, 0, i.imm), highest};
    }
    if (i.op != Opcode::kAdd && i.op != Opcode::kMul &&
        i.op != Opcode::kShrLogical) {
      return std::nullopt;
    }
    const std::optional<Twin> a = twins_[i.values[0]], b = twins_[i.values[1]];
    if (!a || !b) return std::nullopt;
    if (i.op == Opcode::kShrLogical) {
      if (code_[b->value].op != Opcode::kConst) return std::nullopt;
      if (b->highest >= 32) return Twin{AddNarrow(Opcode::kConst, 0, 0, 0), 0};
      return Twin{AddNarrow(i.op, a->value, b->value, 0),
                  a->highest >> b->highest};
    }
    const uint64_t highest = i.op == Opcode::kAdd ? a->highest + b->highest
                                                  : a->highest * b->highest;
    if (highest > kHighest) return std::nullopt;
    return Twin{AddNarrow(i.op, a->value, b->value, 0), highest};
  }

  RegisterCode& program_;
  const std::vector<int64_t>& shape_;
  std::vector<Instruction> code_;
  std::vector<std::optional<Twin>> twins_;  // by number in code_
};

}  // namespace

void NarrowIntegers(RegisterCode& program, const std::vector<int64_t>& shape) {
  const bool cuts = std::any_of(
      program.code.begin(), program.code.end(), [](const Instruction& i) {
        return i.op == Opcode::kConvert && IsNarrow(i.type) &&
               IsWide(TypeBefore(i));
      });
  // Each instruction becomes two at most, whose numbers have 16 bits.
  if (cuts && program.code.size() <= std::numeric_limits<int16_t>::max()) {
    Narrower(program, shape).Run();
    DropDeadCode(program);
  }
}

}  // namespace ipu::program
