// Conversion between f32 vectors and f16 or bf16, which are held as 16-bit
// lanes or in the low 16 bits of 32-bit lanes.
//
// Values that are only moved must keep their bits, those of a signalling NaN
// too, which the processor's instructions and arithmetic make quiet. Functions
// whose names do not say otherwise therefore keep the bits of a NaN that the
// narrower type can represent.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_HALF_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_HALF_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

using Words = Vector<uint32_t>;
using Floats = Vector<float>;
using Halves = Vector<uint16_t, kLanes<uint32_t>>;

inline Halves Narrow(const Words& words) {
  return ConvertLanes<uint16_t>(words);
}
inline Words Widen(const Halves& halves) {
  return ConvertLanes<uint32_t>(halves);
}

inline Floats FromBf16(const Halves& bits) {
  return BitCast<Floats>(Widen(bits) << 16);
}

// Sets the quiet bit of a NaN whose payload does not fit, as it might become an
// infinity otherwise.
inline constexpr uint32_t kQuietF32 = 0x400000;

// Rounds to nearest, ties to even.
inline Words Bf16Bits(const Floats& x) {
  const Words bits = BitCast<Words>(x);
  const Words rounded = bits + 0x7fff + (bits >> 16 & 1);
  const Words nan = (bits & 0xffff) == 0 ? bits : bits | kQuietF32;
  return (x == x ? rounded : nan) >> 16;
}

// A NaN becomes quiet.
inline Words QuietBf16Bits(const Floats& x) {
  const Words bits = BitCast<Words>(x);
  const Words rounded = bits + 0x7fff + (bits >> 16 & 1);
  return (x == x ? rounded : bits | kQuietF32) >> 16;
}

// A NaN becomes quiet.
inline Floats QuietFromF16(const Halves& bits) {
#if IPU_AVX512
  return BitCast<Floats>(_mm512_cvtph_ps(BitCast<__m256i>(bits)));
#elif defined(__F16C__) && defined(__AVX2__)
  return BitCast<Floats>(_mm256_cvtph_ps(BitCast<__m128i>(bits)));
#else
  // Exponent biases differ by 112; denormals are multiples of 2^-24.
  const Words wide = Widen(bits);
  const Words magnitude = wide & 0x7fff;
  const Words normal = (magnitude << 13) + (112u << 23);
  const Words special = magnitude << 13 | 0x7f800000;
  const Words denormal = BitCast<Words>(
      ConvertLanes<float>(BitCast<Vector<int32_t>>(magnitude)) * 0x1p-24f);
  const Words result = magnitude < 0x0400 ? denormal : normal;
  return BitCast<Floats>((magnitude >= 0x7c00 ? special : result) |
                         (wide & 0x8000) << 16);
#endif
}

inline Floats FromF16(const Halves& bits) {
  const Floats x = QuietFromF16(bits);
  const Words nan =
      (BitCast<Words>(x) & ~kQuietF32) | (Widen(bits) << 13 & kQuietF32);
  return x == x ? x : BitCast<Floats>(nan);
}

// Rounds to nearest, ties to even. A NaN becomes quiet.
inline Halves QuietF16Bits(const Floats& x) {
#if IPU_AVX512
  return BitCast<Halves>(_mm512_cvtps_ph(
      BitCast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__) && defined(__AVX2__)
  return BitCast<Halves>(_mm256_cvtps_ph(
      BitCast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  const Words bits = BitCast<Words>(x);
  const Words magnitude = bits & 0x7fffffff;
  // Below 2^-14, adding 0.5 rounds to a multiple of 2^-24, f16's denormals.
  const Words denormal =
      BitCast<Words>(BitCast<Floats>(magnitude) + 0.5f) - 0x3f000000;
  const Words normal =
      (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  Words half = magnitude < 0x38800000 ? denormal : normal;
  half = magnitude >= 0x477ff000 ? (half & 0) + 0x7c00 : half;
  half = magnitude > 0x7f800000 ? (magnitude >> 13 & 0x3ff) | 0x7e00 : half;
  return Narrow(half | (bits >> 16 & 0x8000));
#endif
}

// Rounds to nearest, ties to even.
inline Halves F16Bits(const Floats& x) {
  const Words wide = BitCast<Words>(x);
  const Words half = Widen(QuietF16Bits(x));
  const Words nan = (half & ~0x200u) | (wide >> 13 & 0x200);
  const auto fits = (x != x) & BitCast<Vector<int32_t>>((wide & 0x1fff) == 0);
  return Narrow(fits != 0 ? nan : half);
}

// Rounding is arithmetic: a NaN becomes quiet.
inline Floats RoundToF16(const Floats& x) {
  return QuietFromF16(QuietF16Bits(x));
}
inline Floats RoundToBf16(const Floats& x) {
  return BitCast<Floats>(QuietBf16Bits(x) << 16);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_HALF_H_
