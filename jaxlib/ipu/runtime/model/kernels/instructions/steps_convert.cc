// CONVERT between register types, and the instructions that reduce a value to
// the range of a narrower element type.

#include <limits>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/elements/register_types.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic_integer.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/half.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Opcode;
using program::RegisterType;

// Integers convert as in C. Floats convert to integers with saturation, NaN to
// 0.
template <typename To>
struct ConvertTo {
  template <typename V>
  static Vector<To, kSize<V>> Do(V a) {
    using From = Element<V>;
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      using Out = Vector<To, kSize<V>>;
      using Flag = SignedBits<To>;
      constexpr To kMin = std::numeric_limits<To>::min();
      constexpr To kMax = std::numeric_limits<To>::max();
      // The smallest power of two above the range.
      constexpr From kAbove = From(2) * From(kMax / 2 + 1);
      const auto above = ConvertLanes<Flag>(a >= kAbove);
      const auto below = ConvertLanes<Flag>(a < From(kMin));
      const auto nan = ConvertLanes<Flag>(a != a);
      Out result = ConvertLanes<To>(a);
      result = above != 0 ? Splat<Out>(kMax) : result;
      result = below != 0 ? Splat<Out>(kMin) : result;
      return nan != 0 ? Out{} : result;
    } else {
      return ConvertLanes<To>(a);
    }
  }
};

StepFn FindConvert(RegisterType from, RegisterType to) {
  return WithRegister(from, [to]<typename From>(From) {
    return WithRegister(to, []<typename To>(To) -> StepFn {
      return RunStep<ConvertTo<To>, To, From>;
    });
  });
}

// Keeps the low bits of an integer, sign- or zero-extended.
template <typename Narrow>
struct Wrap {
  template <typename V>
  static V Do(V a) {
    constexpr int kUnused = kWidth<V> - 8 * sizeof(Narrow);
    using U = BitsOf<V>;
    return BitCast<V>(BitCast<U>(a) << kUnused) >> kUnused;
  }
};

struct RoundF16 {
  static Floats Do(Floats a) { return RoundToF16(a); }
};
struct RoundBf16 {
  static Floats Do(Floats a) { return RoundToBf16(a); }
};
struct BitsOfF16 {
  static Words Do(Floats a) { return Widen(F16Bits(a)); }
};
struct BitsOfBf16 {
  static Words Do(Floats a) { return Bf16Bits(a); }
};
struct F16OfBits {
  static Floats Do(Words a) { return FromF16(Narrow(a)); }
};
struct Bf16OfBits {
  static Floats Do(Words a) { return BitCast<Floats>(a << 16); }
};

}  // namespace

StepFn FindConversion(const program::Instruction& i) {
  switch (i.op) {
    case Opcode::kConvert:
      return FindConvert(program::TypeBefore(i), i.type);
    case Opcode::kWrapI8:
      return RunStep<Wrap<int8_t>, int32_t, int32_t>;
    case Opcode::kWrapI16:
      return RunStep<Wrap<int16_t>, int32_t, int32_t>;
    case Opcode::kWrapU8:
      return RunStep<Wrap<uint8_t>, uint32_t, uint32_t>;
    case Opcode::kWrapU16:
      return RunStep<Wrap<uint16_t>, uint32_t, uint32_t>;
    case Opcode::kRoundF16:
      return RunStep<RoundF16, float, float>;
    case Opcode::kRoundBf16:
      return RunStep<RoundBf16, float, float>;
    case Opcode::kBitsF16:
      return RunStep<BitsOfF16, uint32_t, float>;
    case Opcode::kBitsBf16:
      return RunStep<BitsOfBf16, uint32_t, float>;
    case Opcode::kFromBitsF16:
      return RunStep<F16OfBits, float, uint32_t>;
    case Opcode::kFromBitsBf16:
      return RunStep<Bf16OfBits, float, uint32_t>;
    default:
      return nullptr;
  }
}

StepFn FindStep(const program::Instruction& i) {
  const bool conversion =
      i.op >= Opcode::kConvert && i.op <= Opcode::kFromBitsBf16;
  if (conversion) return FindConversion(i);
  switch (i.type) {
    case RegisterType::kF32:
      return FindF32(i.op);
    case RegisterType::kF64:
      return FindF64(i.op);
    case RegisterType::kI32:
      return FindI32(i.op);
    case RegisterType::kU32:
      return FindU32(i.op);
    case RegisterType::kI64:
      return FindI64(i.op);
    case RegisterType::kU64:
      return FindU64(i.op);
  }
  return nullptr;
}

}  // namespace ipu::model::IPU_SIMD_NS
