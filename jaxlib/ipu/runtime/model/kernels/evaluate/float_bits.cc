#include "jaxlib/ipu/runtime/model/kernels/evaluate/float_bits.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;
using program::RegisterType;

constexpr RegisterType kBits = RegisterType::kU32;

Opcode TakesApart(DType dtype) {
  return dtype == DType::kF16 ? Opcode::kBitsF16 : Opcode::kBitsBf16;
}
Opcode PutsTogether(DType dtype) {
  return dtype == DType::kF16 ? Opcode::kFromBitsF16 : Opcode::kFromBitsBf16;
}
bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// The bits of a number that has the type exactly.
std::optional<uint32_t> BitsOf(uint64_t imm, DType dtype) {
  const auto number = static_cast<uint32_t>(imm);
  if (std::bit_cast<float>(number) != std::bit_cast<float>(number)) {
    return std::nullopt;
  }
  if (dtype == DType::kBF16) {
    if ((number & 0xffff) != 0) return std::nullopt;
    return number >> 16;
  }
  const uint16_t bits = _cvtss_sh(std::bit_cast<float>(number), 0);
  if (std::bit_cast<uint32_t>(_cvtsh_ss(bits)) != number) return std::nullopt;
  return bits;
}

// Writes a program again, with the bits of some of its values.
class Rewriter {
 public:
  explicit Rewriter(Evaluation& evaluation)
      : evaluation_(evaluation), code_(evaluation.code.code) {}

  void Run() {
    std::vector<uint16_t>& outputs = evaluation_.code.outputs;
    std::vector<DType> wanted(code_.size(), DType::kNone);
    for (size_t at = code_.size(); at-- > 0;) {
      const Instruction& i = code_[at];
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        if (i.op == TakesApart(dtype) && IsOperand(i.values[0], dtype)) {
          wanted[i.values[0]] = dtype;
        }
      }
    }
    std::vector<bool> stored(outputs.size());
    for (size_t j = 0; j < outputs.size(); ++j) {
      const DType dtype = evaluation_.results[j].view.dtype;
      stored[j] = IsHalf(dtype) && !IsOperand(outputs[j], dtype) &&
                  HasBits(outputs[j], dtype);
      if (stored[j]) Want(outputs[j], dtype, wanted);
    }
    for (size_t at = 0; at < code_.size(); ++at) {
      if (wanted[at] != DType::kNone) bits_[at] = Bits(code_[at], wanted[at]);
      Copy(at, wanted);
    }
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (stored[j]) evaluation_.results[j].view.dtype = DType::kU16;
      outputs[j] = stored[j] ? bits_[outputs[j]] : copies_[outputs[j]];
    }
    code_ = std::move(made_);
  }

 private:
  bool IsOperand(uint16_t value, DType dtype) const {
    return code_[value].op == Opcode::kLoad &&
           evaluation_.operands[code_[value].imm].view.dtype == dtype;
  }

  // Whether a float is only moved, but for its sign.
  bool HasBits(uint16_t value, DType dtype) {
    const auto known = has_bits_.find({value, dtype});
    if (known != has_bits_.end()) return known->second;
    return has_bits_[{value, dtype}] = FindBits(value, dtype);
  }
  bool FindBits(uint16_t value, DType dtype) {
    const Instruction& i = code_[value];
    switch (i.op) {
      case Opcode::kLoad:
        return IsOperand(value, dtype);
      case Opcode::kConst:
        return i.type == RegisterType::kF32 && BitsOf(i.imm, dtype).has_value();
      case Opcode::kAbs:
      case Opcode::kNegate:
        return HasBits(i.values[0], dtype);
      case Opcode::kSelect:
        return HasBits(i.values[1], dtype) && HasBits(i.values[2], dtype);
      default:
        return i.op == PutsTogether(dtype);
    }
  }

  void Want(uint16_t value, DType dtype, std::vector<DType>& wanted) const {
    if (wanted[value] != DType::kNone) return;
    wanted[value] = dtype;
    const Instruction& i = code_[value];
    if (i.op == PutsTogether(dtype)) return;
    for (size_t k = i.op == Opcode::kSelect ? 1 : 0; k < i.operands().size();
         ++k) {
      Want(i.values[k], dtype, wanted);
    }
  }

  uint16_t Add(const Instruction& i) {
    made_.push_back(i);
    return static_cast<uint16_t>(made_.size() - 1);
  }

  // Adds what makes the bits of a value whose operands have been added.
  uint16_t Bits(const Instruction& i, DType dtype) {
    const auto with_sign = [&](Opcode op, uint32_t mask) {
      const uint16_t number = Add({Opcode::kConst, kBits, {}, mask});
      return Add({op, kBits, {bits_[i.values[0]], number}, 0});
    };
    switch (i.op) {
      case Opcode::kLoad: {
        const auto [at, is_new] =
            operands_.insert({i.imm, evaluation_.operands.size()});
        if (is_new) {
          Operand operand = evaluation_.operands[i.imm];
          operand.view.dtype = DType::kU16;
          evaluation_.operands.push_back(std::move(operand));
        }
        return Add({Opcode::kLoad, kBits, {}, at->second});
      }
      case Opcode::kConst:
        return Add({Opcode::kConst, kBits, {}, *BitsOf(i.imm, dtype)});
      case Opcode::kAbs:
        return with_sign(Opcode::kAnd, 0x7fff);
      case Opcode::kNegate:
        return with_sign(Opcode::kXor, 0x8000);
      case Opcode::kSelect:
        return Add(
            {Opcode::kSelect,
             kBits,
             {copies_[i.values[0]], bits_[i.values[1]], bits_[i.values[2]]},
             0});
      default:
        return copies_[i.values[0]];
    }
  }

  void Copy(size_t at, const std::vector<DType>& wanted) {
    Instruction i = code_[at];
    const bool is_known =
        (i.op == Opcode::kBitsF16 || i.op == Opcode::kBitsBf16) &&
        code_[i.values[0]].op == Opcode::kLoad &&
        wanted[i.values[0]] != DType::kNone;
    if (is_known) {
      copies_[at] = bits_[i.values[0]];
      return;
    }
    for (uint16_t& value : i.operands()) value = copies_[value];
    copies_[at] = Add(i);
  }

  Evaluation& evaluation_;
  std::vector<Instruction>& code_;
  std::vector<Instruction> made_;
  std::map<size_t, uint16_t> copies_, bits_;  // of each value
  std::map<uint64_t, uint64_t> operands_;     // those of the bits
  std::map<std::pair<uint16_t, DType>, bool> has_bits_;
};

}  // namespace

void MoveFloatBits(Evaluation& evaluation) {
  const auto is_half = [](const Operand& tensor) {
    return IsHalf(tensor.view.dtype);
  };
  if (std::any_of(evaluation.operands.begin(), evaluation.operands.end(),
                  is_half) ||
      std::any_of(evaluation.results.begin(), evaluation.results.end(),
                  is_half)) {
    Rewriter(evaluation).Run();
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
