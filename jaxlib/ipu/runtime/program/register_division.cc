#include "jaxlib/ipu/runtime/program/register_division.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ipu::program {
namespace {

// Granlund and Montgomery, "Division by invariant integers using
// multiplication" (1994), figures 4.1 and 5.2. With `high` the high half of x *
// multiplier, the quotient is (high + (x - high) / 2) >> shift if x is
// unsigned, which avoids a sum that does not fit, else ((high + x) >> shift) +
// (x < 0).
template <typename U>
struct Reciprocal {
  U multiplier;
  int shift;
};

using Wide = unsigned __int128;

// The reciprocal of a magnitude from 2 on.
template <typename U>
Reciprocal<U> ReciprocalOf(U d, bool is_signed) {
  constexpr int kBits = std::numeric_limits<U>::digits;
  const int l = std::bit_width(static_cast<U>(d - 1));
  const Wide numerator =
      is_signed ? Wide{1} << (kBits + l - 1) : ((Wide{1} << l) - d) << kBits;
  return {static_cast<U>(numerator / d + 1), l - 1};
}

// Rewrites a program from its beginning to its end.
class Rewriter {
 public:
  explicit Rewriter(RegisterCode& program)
      : old_(std::move(program.code)), name_(old_.size()) {
    for (size_t at = 0; at < old_.size(); ++at) {
      Instruction i = old_[at];
      for (uint16_t& value : i.operands()) value = name_[value];
      name_[at] = IsDivision(i) ? Divide(i) : Add(i);
    }
    for (uint16_t& value : program.outputs) value = name_[value];
    program.code = std::move(code_);
  }

 private:
  // A limit of the instructions that a division adds: constants, a change of
  // sign.
  static constexpr size_t kMostAdded = 4;

  bool IsDivision(const Instruction& i) const {
    if (i.op != Opcode::kDiv && (i.op != Opcode::kRem || IsFloat(i.type))) {
      return false;
    }
    return code_[i.values[1]].op == Opcode::kConst &&
           code_.size() + kMostAdded * old_.size() < 65535;
  }

  uint16_t Add(const Instruction& i) {
    code_.push_back(i);
    return static_cast<uint16_t>(code_.size() - 1);
  }
  uint16_t Const(uint64_t value) {
    return Add({Opcode::kConst, type_, {}, value});
  }

  uint16_t Divide(const Instruction& i) {
    type_ = i.type;
    const uint64_t divisor = code_[i.values[1]].imm;
    switch (type_) {
      case RegisterType::kI32:
      case RegisterType::kU32:
        return DivideAs<uint32_t>(i, static_cast<uint32_t>(divisor));
      case RegisterType::kF32:
        return DivideFloat<uint32_t>(i, static_cast<uint32_t>(divisor), 23);
      case RegisterType::kF64:
        return DivideFloat<uint64_t>(i, divisor, 52);
      default:
        return DivideAs<uint64_t>(i, divisor);
    }
  }

  // A power of two has an exact reciprocal, unless that is infinite or
  // denormal: the product is rounded as the quotient is.
  template <typename U>
  uint16_t DivideFloat(const Instruction& i, U divisor, int mantissa) {
    const U sign = U{1} << (8 * sizeof(U) - 1), one = U{1} << mantissa;
    // Exponents are numbers from 1 to 2 * `bias`, of 1.0 the middle one.
    const U bias = sign / one / 2 - 1, exponent = (divisor & ~sign) / one;
    const U reciprocal = 2 * bias - exponent;
    if (divisor % one != 0 || exponent < 1 || exponent >= 2 * bias) {
      return Add(i);
    }
    const uint16_t by = Const((divisor & sign) | reciprocal * one);
    return Add({Opcode::kMul, type_, {i.values[0], by, 0}, 0});
  }

  template <typename U>
  uint16_t DivideAs(const Instruction& i, U d) {
    const bool is_signed =
        type_ == RegisterType::kI32 || type_ == RegisterType::kI64;
    const bool negative = is_signed && d > ~U{0} / 2;
    const U magnitude = negative ? U{0} - d : d;
    if (magnitude < 2) return Add(i);
    const uint16_t x = i.values[0];
    const auto [multiplier, shift] = ReciprocalOf<U>(magnitude, is_signed);
    const uint16_t by = Const(multiplier);
    const auto imm = static_cast<uint64_t>(shift);
    if (i.op == Opcode::kRem) {  // has the sign of x
      return Add({kRemainderBy, type_, {x, by, Const(magnitude)}, imm});
    }
    const uint16_t quotient = Add({kDivideBy, type_, {x, by, 0}, imm});
    return negative ? Add({Opcode::kNegate, type_, {quotient, 0, 0}, 0})
                    : quotient;
  }

  const std::vector<Instruction> old_;
  std::vector<uint16_t> name_;
  std::vector<Instruction> code_;
  RegisterType type_ = RegisterType::kI32;
};

}  // namespace

void DivideByMultiplying(RegisterCode& program) { Rewriter rewriter(program); }

// Both multipliers of ReciprocalOf are numerator / divisor + 1 but for a
// multiple of 2^32, with a numerator of at least 2^31 times the divisor. The
// quotient is then so much larger than the divisor that dividing by it once
// more gives the divisor.
uint32_t DivisorOf(const Instruction& divide_by, uint32_t multiplier) {
  const bool is_signed = divide_by.type == RegisterType::kI32;
  const auto shift = static_cast<int>(divide_by.imm);
  const Wide numerator = Wide{1} << (32 + shift + (is_signed ? 0 : 1));
  const Wide quotient =
      Wide{multiplier} + (is_signed ? Wide{0} : Wide{1} << 32) - 1;
  return static_cast<uint32_t>(numerator / quotient);
}

}  // namespace ipu::program
