#include "jaxlib/ipu/runtime/program/register_division.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ipu::program {
namespace {

// A quotient is the high half of a product with `multiplier`, corrected and
// shifted right. The numbers are those of Granlund and Montgomery, "Division by
// invariant integers using multiplication"; U is the unsigned type.
template <typename U>
struct Reciprocal {
  U multiplier;
  int shift;
  bool adds;  // unsigned: the multiplier has one more bit
};

template <typename U>
constexpr int kBits = std::numeric_limits<U>::digits;
template <typename U>
constexpr U kTop = U{1} << (kBits<U> - 1);

// 2^p / d rounded up, for the smallest p that gives exact quotients of all
// dividends. Divisors from 2 on.
template <typename U>
Reciprocal<U> UnsignedReciprocal(U d) {
  const U most = ~U{0} - (U{0} - d) % d;  // the worst dividend
  U by_most = kTop<U> / most, rest_of_most = kTop<U> % most;
  U by_d = (kTop<U> - 1) / d, rest_of_d = (kTop<U> - 1) % d;
  bool adds = false;
  int p = kBits<U> - 1;
  U error;
  do {
    ++p;
    const bool carry = rest_of_most >= most - rest_of_most;
    by_most = 2 * by_most + carry;
    rest_of_most = 2 * rest_of_most - (carry ? most : 0);
    const bool up = rest_of_d + 1 >= d - rest_of_d;
    adds = adds || by_d >= kTop<U> - up;
    by_d = 2 * by_d + up;
    rest_of_d = 2 * rest_of_d + 1 - (up ? d : 0);
    error = d - 1 - rest_of_d;
  } while (p < 2 * kBits<U> &&
           (by_most < error || (by_most == error && rest_of_most == 0)));
  return {by_d + 1, p - kBits<U>, adds};
}

// The same for signed integers, of magnitudes from 2 on.
template <typename U>
Reciprocal<U> SignedReciprocal(U d) {
  const bool negative = d >= kTop<U>;
  const U magnitude = negative ? U{0} - d : d;
  const U limit = kTop<U> + negative;
  const U most = limit - 1 - limit % magnitude;
  U by_most = kTop<U> / most, rest_of_most = kTop<U> % most;
  U by_d = kTop<U> / magnitude, rest_of_d = kTop<U> % magnitude;
  int p = kBits<U> - 1;
  U error;
  do {
    ++p;
    const bool carry = rest_of_most >= most - rest_of_most;
    by_most = 2 * by_most + carry;
    rest_of_most = 2 * rest_of_most - (carry ? most : 0);
    const bool up = rest_of_d >= magnitude - rest_of_d;
    by_d = 2 * by_d + up;
    rest_of_d = 2 * rest_of_d - (up ? magnitude : 0);
    error = magnitude - rest_of_d;
  } while (by_most < error || (by_most == error && rest_of_most == 0));
  const U multiplier = by_d + 1;
  return {negative ? U{0} - multiplier : multiplier, p - kBits<U>, false};
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
  static constexpr size_t kMostAdded = 16;

  bool IsDivision(const Instruction& i) const {
    if (IsFloat(i.type) || (i.op != Opcode::kDiv && i.op != Opcode::kRem)) {
      return false;
    }
    return code_[i.values[1]].op == Opcode::kConst &&
           code_.size() + kMostAdded * old_.size() < 65535;
  }

  uint16_t Add(const Instruction& i) {
    code_.push_back(i);
    return static_cast<uint16_t>(code_.size() - 1);
  }
  uint16_t Add(Opcode op, uint16_t a, uint16_t b) {
    return Add({op, type_, {a, b, 0}, 0});
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
      default:
        return DivideAs<uint64_t>(i, divisor);
    }
  }

  template <typename U>
  uint16_t DivideAs(const Instruction& i, U d) {
    const bool is_signed =
        type_ == RegisterType::kI32 || type_ == RegisterType::kI64;
    if (d < 2 || (is_signed && d == ~U{0})) return Add(i);
    const uint16_t x = i.values[0];
    const uint16_t quotient =
        is_signed ? SignedQuotient(x, d) : UnsignedQuotient(x, d);
    if (i.op == Opcode::kDiv) return quotient;
    return Add(Opcode::kSub, x, Add(Opcode::kMul, quotient, i.values[1]));
  }

  template <typename U>
  uint16_t UnsignedQuotient(uint16_t x, U d) {
    const Reciprocal<U> by = UnsignedReciprocal(d);
    const uint16_t high = Add(kMulHigh, x, Const(by.multiplier));
    if (!by.adds) return Shift(Opcode::kShrLogical, high, by.shift);
    // (x + high) / 2^shift, whose sum does not fit.
    const uint16_t half =
        Shift(Opcode::kShrLogical, Add(Opcode::kSub, x, high), 1);
    return Shift(Opcode::kShrLogical, Add(Opcode::kAdd, half, high),
                 by.shift - 1);
  }

  template <typename U>
  uint16_t SignedQuotient(uint16_t x, U d) {
    const Reciprocal<U> by = SignedReciprocal(d);
    uint16_t high = Add(kMulHigh, x, Const(by.multiplier));
    const bool negative = d >= kTop<U>;
    if (negative != (by.multiplier >= kTop<U>)) {
      high = Add(negative ? Opcode::kSub : Opcode::kAdd, high, x);
    }
    const uint16_t floor = Shift(Opcode::kShrArithmetic, high, by.shift);
    const uint16_t sign = Shift(Opcode::kShrLogical, floor, kBits<U> - 1);
    return Add(Opcode::kAdd, floor, sign);  // rounds towards zero
  }

  uint16_t Shift(Opcode op, uint16_t value, int by) {
    return by == 0 ? value : Add(op, value, Const(static_cast<uint64_t>(by)));
  }

  const std::vector<Instruction> old_;
  std::vector<uint16_t> name_;
  std::vector<Instruction> code_;
  RegisterType type_ = RegisterType::kI32;
};

}  // namespace

void DivideByMultiplying(RegisterCode& program) { Rewriter rewriter(program); }

}  // namespace ipu::program
