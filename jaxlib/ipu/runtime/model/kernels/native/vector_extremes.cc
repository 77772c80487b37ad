// The larger or the smaller of two: IEEE 754's maximum and minimum, with less
// work where one of the two is a known bound.

#include <cstdint>
#include <optional>

#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

namespace ipu::model::IPU_SIMD_NS {

// NaN propagates (the first of two); -0 < +0.
void VectorEmitter::ExtremeF(bool max, uint32_t w, int d, int a, int b) {
  const int other = NewRegister();
  const uint8_t code = max ? x86::kMaxF : x86::kMinF;
  OpF(code, w, d, a, b);      // gives b if they are equal or unordered
  OpF(code, w, other, b, a);  // gives a then
  OpI(max ? x86::kAnd : x86::kOr, w, d, d, other);
  const Mask nan = NewMask(w);
  CompareF(nan, w, b, b, kUnorderedF);
  Blend(w, nan, d, d, b);
  CompareF(nan, w, a, a, kUnorderedF);
  Blend(w, nan, d, d, a);
  Free(nan);
  Free(other);
}

VectorEmitter::Bound VectorEmitter::BoundOf(bool max, RegisterType type,
                                            std::optional<uint64_t> bits) {
  if (!bits) return Bound::kAny;
  const bool wide = program::RegisterBytes(type) == 8;
  const uint64_t sign = uint64_t{1} << (wide ? 63 : 31);
  const uint64_t infinity = wide ? 0x7ff0'0000'0000'0000 : 0x7f80'0000;
  const uint64_t all = wide ? *bits : *bits & 0xffff'ffff;
  if ((all & ~sign) > infinity) return Bound::kAny;
  return all == (max ? 0 : sign) ? Bound::kZero : Bound::kOrdinary;
}

// The instruction gives its second operand if the two are equal or unordered,
// which is right if that is `a`, but for zeros of which the bound is the
// result. Then the bound comes second, and a NaN of `a` is put in.
void VectorEmitter::ExtremeOfBound(bool max, uint32_t w, int d, int a,
                                   int bound, Bound known) {
  const uint8_t code = max ? x86::kMaxF : x86::kMinF;
  if (known == Bound::kOrdinary) return OpF(code, w, d, bound, a);
  OpF(code, w, d, a, bound);
  const Mask nan = NewMask(w);
  CompareF(nan, w, a, a, kUnorderedF);
  Blend(w, nan, d, d, a);
  Free(nan);
}

void VectorEmitter::Extreme(bool max, RegisterType type, int d, int a, int b,
                            const Known& known_a, const Known& known_b) {
  if (!program::IsFloat(type)) return ExtremeI(max, type, d, a, b);
  const uint32_t w = program::RegisterBytes(type);
  const Bound of_a = BoundOf(max, type, known_a.bits);
  const Bound of_b = BoundOf(max, type, known_b.bits);
  if (of_b != Bound::kAny) return ExtremeOfBound(max, w, d, a, b, of_b);
  if (of_a != Bound::kAny) return ExtremeOfBound(max, w, d, b, a, of_a);
  if (known_b.is_magnitude && (max || known_a.is_magnitude)) {
    return ExtremeOfBound(max, w, d, a, b, Bound::kZero);
  }
  ExtremeF(max, w, d, a, b);
}

}  // namespace ipu::model::IPU_SIMD_NS
