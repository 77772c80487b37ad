#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/register_division.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;
using program::RegisterType;
using MaybeRange = std::optional<Range>;

// Super-instructions are not enumerators of Opcode.
constexpr int OpNumber(Opcode op) { return static_cast<int>(op); }

constexpr Range kFlag{0, 1};

bool IsInteger(RegisterType type) {
  return type == RegisterType::kI32 || type == RegisterType::kU32;
}

Range All(RegisterType type) {
  if (type == RegisterType::kU32) return {0, 0xffffffff};
  return {-int64_t{0x80000000}, 0x7fffffff};
}

// The range of elements in memory; nothing if they have more than 16 bits.
MaybeRange OfElements(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return Range{0, 0xff};
    case DType::kI8:
      return Range{-0x80, 0x7f};
    case DType::kU16:
      return Range{0, 0xffff};
    case DType::kI16:
      return Range{-0x8000, 0x7fff};
    default:
      return std::nullopt;
  }
}

Range Union(Range a, Range b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}

// The range after a value is reduced to narrower elements.
Range Narrowed(Range a, DType dtype) {
  const Range narrow = *OfElements(dtype);
  return Union(a, narrow) == narrow ? a : narrow;
}

// The results of exact arithmetic on registers whose ranges are known. Others
// may have any value: their bounds would have to be computed in more bits.
Range Sum(RegisterType t, Range a, Range b) {
  return As(t, {a.least + b.least, a.most + b.most});
}
Range Difference(RegisterType t, Range a, Range b) {
  return As(t, {a.least - b.most, a.most - b.least});
}
Range Product(RegisterType t, Range a, Range b) {
  if (!a.Fits() || !b.Fits()) return All(t);
  const auto [least, most] = std::minmax(
      {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most});
  return As(t, {least, most});
}

// The range of AND, OR and XOR: no bit beyond those of the operands.
Range Bitwise(Range a, Range b) {
  const Range both = Union(a, b);
  int64_t most = 1;
  while (both.least < -most || both.most >= most) most *= 2;
  return {both.least < 0 ? -most : 0, most - 1};
}

class Analysis {
 public:
  explicit Analysis(std::span<const NativeValue> values) : values_(values) {}

  std::optional<std::vector<Range>> Run() {
    for (const NativeValue& v : values_) {
      const MaybeRange range = OfValue(v);
      if (!range || (v.stored >= 0 && !CanStore(*range, v.stored_dtype))) {
        return std::nullopt;
      }
      ranges_.push_back(*range);
    }
    return std::move(ranges_);
  }

 private:
  static bool CanStore(Range range, DType dtype) {
    return OfElements(dtype) && (dtype != DType::kBool || range.Fits());
  }

  MaybeRange OfValue(const NativeValue& v) const {
    switch (v.kind) {
      case NativeValue::kElements:
        return OfElements(v.source->dtype);
      case NativeValue::kInvariant: {
        if (v.width != 4) return std::nullopt;
        if (const auto bits = Constant(v)) return Range{*bits, *bits};
        const MaybeRange loaded = OfElements(v.loaded_dtype);
        return loaded ? loaded : All(RegisterType::kU32);
      }
      case NativeValue::kBlock:
      case NativeValue::kIndices:
        return std::nullopt;
      case NativeValue::kComputed:
        return OfInstruction(v);
    }
    return std::nullopt;
  }

  Range Operand(const NativeValue& v, int k, RegisterType type) const {
    return As(type, ranges_[v.operands[k]]);
  }

  MaybeRange OfInstruction(const NativeValue& v) const {
    const Instruction& i = v.instruction;
    const RegisterType t = i.type;
    if (!IsInteger(t)) return std::nullopt;
    if (i.op == Opcode::kConvert && !IsInteger(program::TypeBefore(i))) {
      return std::nullopt;
    }
    Range r[3] = {};
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] >= 0) r[k] = Operand(v, k, t);
    }
    if (const auto range = OfRest(v, r[2])) return range;
    if (const auto range = OfArithmetic(i, r[0], r[1], r[2])) return range;
    if (const auto range = OfOrder(i, r[0], r[1], r[2])) return range;
    switch (OpNumber(i.op)) {
      case OpNumber(Opcode::kConvert):
        return As(t, Operand(v, 0, program::TypeBefore(i)));
      case OpNumber(Opcode::kSelect):
        if (!ranges_[v.operands[0]].Fits()) return std::nullopt;
        return Union(r[1], r[2]);
      case OpNumber(Opcode::kShl):
      case OpNumber(Opcode::kShrLogical):
      case OpNumber(Opcode::kShrArithmetic):
        return OfShift(v, r[0]);
      case OpNumber(program::kDivideBy):
      case OpNumber(program::kRemainderBy):
        return OfDivision(v, r[0]);
      default:
        return std::nullopt;
    }
  }

  // What needs only the low bits of its operands.
  static MaybeRange OfArithmetic(const Instruction& i, Range a, Range b,
                                 Range c) {
    const RegisterType t = i.type;
    switch (OpNumber(i.op)) {
      case OpNumber(Opcode::kWrapI8):
        return Narrowed(a, DType::kI8);
      case OpNumber(Opcode::kWrapI16):
        return Narrowed(a, DType::kI16);
      case OpNumber(Opcode::kWrapU8):
        return Narrowed(a, DType::kU8);
      case OpNumber(Opcode::kWrapU16):
        return Narrowed(a, DType::kU16);
      case OpNumber(Opcode::kNegate):
        return As(t, {-a.most, -a.least});
      case OpNumber(Opcode::kNot):
        return As(t, {~a.most, ~a.least});
      case OpNumber(Opcode::kAdd):
        return Sum(t, a, b);
      case OpNumber(Opcode::kSub):
        return Difference(t, a, b);
      case OpNumber(Opcode::kMul):
        return Product(t, a, b);
      case OpNumber(Opcode::kAnd):
        // At most the smaller operand, unless that one may be negative.
        if (a.least < 0 && b.least < 0) return As(t, Bitwise(a, b));
        return Range{0, std::min(a.least < 0 ? b.most : a.most,
                                 b.least < 0 ? a.most : b.most)};
      case OpNumber(Opcode::kOr):
      case OpNumber(Opcode::kXor):
        return As(t, Bitwise(a, b));
      case OpNumber(program::kMulAdd):
        return Sum(t, Product(t, a, b), c);
      case OpNumber(program::kMulSub):
        return Difference(t, Product(t, a, b), c);
      case OpNumber(program::kNegMulAdd):
        return Difference(t, c, Product(t, a, b));
      case OpNumber(program::kMulMul):
        return Product(t, Product(t, a, b), c);
      case OpNumber(program::kAddAdd):
        return Sum(t, Sum(t, a, b), c);
      case OpNumber(program::kAddMul):
        return Product(t, Sum(t, a, b), c);
      case OpNumber(program::kSubMul):
        return Product(t, Difference(t, a, b), c);
      default:
        return std::nullopt;
    }
  }

  // What compares values.
  static MaybeRange OfOrder(const Instruction& i, Range a, Range b, Range c) {
    switch (i.op) {
      case Opcode::kAbs:
        if (!a.Fits()) return std::nullopt;
        if (a.least >= 0) return a;
        return Range{0, std::max(-a.least, a.most)};
      case Opcode::kSign:
        if (!a.Fits()) return std::nullopt;
        return Range{a.least < 0 ? -1 : 0, 1};
      case Opcode::kMax:
        if (!Union(a, b).Fits()) return std::nullopt;
        return Range{std::max(a.least, b.least), std::max(a.most, b.most)};
      case Opcode::kMin:
        if (!Union(a, b).Fits()) return std::nullopt;
        return Range{std::min(a.least, b.least), std::min(a.most, b.most)};
      case Opcode::kClamp:  // to bounds a and c, which may be reversed
        if (!Union(Union(a, b), c).Fits()) return std::nullopt;
        return Union(Union(a, b), c);
      case Opcode::kEq:
      case Opcode::kNe:
      case Opcode::kLt:
      case Opcode::kLe:
      case Opcode::kGt:
      case Opcode::kGe:
        if (!Union(a, b).Fits()) return std::nullopt;
        return kFlag;
      default:
        return std::nullopt;
    }
  }

  // Only shifts by a constant.
  MaybeRange OfShift(const NativeValue& v, Range a) const {
    const auto by = Constant(values_[v.operands[1]]);
    if (!by) return std::nullopt;
    const RegisterType t = v.instruction.type;
    if (v.instruction.op == Opcode::kShl) {
      return *by < 32 ? Product(t, a, {int64_t{1} << *by, int64_t{1} << *by})
                      : Range{0, 0};
    }
    const bool logical = v.instruction.op == Opcode::kShrLogical;
    if (!(logical ? a.FitsUnsigned() : a.Fits())) return std::nullopt;
    const uint32_t shift = std::min<uint32_t>(*by, 31);
    return Range{a.least >> shift, a.most >> shift};
  }

  MaybeRange OfDivision(const NativeValue& v, Range a) const {
    const auto found = Divisor(values_, v);
    if (!found || !a.Fits()) return std::nullopt;
    const int64_t by = *found;
    if (v.instruction.op == program::kDivideBy) {
      return Range{a.least / by, a.most / by};
    }
    return Remainders(a, by);
  }

  static Range Remainders(Range a, int64_t by) {
    return {std::clamp<int64_t>(a.least, 1 - by, 0),
            std::clamp<int64_t>(a.most, 0, by - 1)};
  }

  // A remainder that is what its quotient leaves: c - c / by * by.
  MaybeRange OfRest(const NativeValue& v, Range c) const {
    if (v.instruction.op != program::kNegMulAdd || !c.Fits()) {
      return std::nullopt;
    }
    const NativeValue& quotient = values_[v.operands[0]];
    if (quotient.instruction.op != program::kDivideBy ||
        quotient.operands[0] != v.operands[2]) {
      return std::nullopt;
    }
    const auto by = Divisor(values_, quotient);
    if (!by || by != Constant(values_[v.operands[1]])) return std::nullopt;
    return Remainders(c, *by);
  }

  const std::span<const NativeValue> values_;
  std::vector<Range> ranges_;
};

}  // namespace

Range As(RegisterType type, Range range) {
  const Range all = All(type);
  if (range.least == range.most) {
    const auto bits = static_cast<uint32_t>(range.least);
    const int64_t value =
        type == RegisterType::kU32 ? bits : static_cast<int32_t>(bits);
    return {value, value};
  }
  return Union(range, all) == all ? range : all;
}

std::optional<uint32_t> Constant(const NativeValue& value) {
  if (value.constant == nullptr) return std::nullopt;
  uint32_t bits;
  std::memcpy(&bits, value.constant, sizeof bits);
  return bits;
}

std::optional<uint32_t> Divisor(std::span<const NativeValue> values,
                                const NativeValue& division) {
  if (division.instruction.op == program::kRemainderBy) {
    return Constant(values[division.operands[2]]);
  }
  const auto multiplier = Constant(values[division.operands[1]]);
  if (!multiplier) return std::nullopt;
  return program::DivisorOf(division.instruction, *multiplier);
}

std::optional<std::vector<Range>> WordRanges(
    std::span<const NativeValue> values) {
  return Analysis(values).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
