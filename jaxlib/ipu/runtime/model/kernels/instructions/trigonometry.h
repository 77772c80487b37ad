// Vectorised sine, cosine, tangent and arctangent; see vector_math.h. What
// counts is the longest chain of operations, as a loop may wait for a result.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_TRIGONOMETRY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_TRIGONOMETRY_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_math.h"

namespace ipu::model::IPU_SIMD_NS {

// Sine and cosine of a float argument reduced to [-pi/4, pi/4], computed in
// doubles so that only the final rounding matters.
struct QuarterTurnsF32 {
  using Wide = Vector<double>;
  // A limit of the reduction: the error of more quarter turns would show.
  static constexpr double kLargest = 1 << 28;
  explicit QuarterTurnsF32(const Wide& x) {
    const Rounded<Wide> turns(x, 0.63661977236758134308);
    quadrant = turns.integer;
    const Wide high = Fma(turns.value, Splat<Wide>(-1.5707963267948965580), x);
    const Wide r =
        Fma(turns.value, Splat<Wide>(-6.1232339957367660359e-17), high);
    // (sin r / r - 1) / z and (cos r - 1 + z / 2) / z^2, where z = r^2
    static constexpr double kSine[] = {
        -0.16666666663849639012, 0.0083333318719670386501,
        -0.00019840085078271724166, 2.7249695847980917508e-6};
    static constexpr double kCosine[] = {0.041666664658194486077,
                                         -0.0013888302476851153207,
                                         2.4547788427026861885e-5};
    const Wide z = r * r;
    sine = z == 0 ? r : Fma(z * r, PolynomialByHalves(z, kSine), r);
    cosine = Fma(z * z, PolynomialByHalves(z, kCosine),
                 Fma(z, Splat<Wide>(-0.5), Splat<Wide>(1)));
  }
  Vector<int64_t> quadrant;
  Wide sine;
  Wide cosine;
};

// The same for doubles. The reduced argument r is kept as a sum of two doubles.
// pi/2 is split into three parts, the first two of 33 bits, so that their
// products with up to 2^20 quarter turns are exact, which is a limit.
struct QuarterTurnsF64 {
  using Wide = Vector<double>;
  static constexpr double kLargest = 1 << 20;  // a limit, see above
  explicit QuarterTurnsF64(const Wide& x) {
    const Rounded<Wide> turns(x, 0.63661977236758134308);
    quadrant = turns.integer;
    const Wide n = turns.value;
    const Wide first = Fma(n, Splat<Wide>(-1.5707963267341256142), x);
    const Wide second = n * 6.0771005063039659765e-11;
    const Wide r = first - second;
    const Wide low =
        Fma(n, Splat<Wide>(-2.0222662487959505786e-21), (first - r) - second);
    static constexpr double kSine[] = {
        -0.16666666666666664614,    0.0083333333333309384387,
        -0.00019841269836742976487, 2.7557316094308226758e-6,
        -2.5051130102082891893e-8,  1.5918002311434128815e-10};
    static constexpr double kCosine[] = {
        0.041666666666666665382,  -0.001388888888888739082,
        2.4801587298755759557e-5, -2.7557317266494933038e-7,
        2.0876145163723171008e-9, -1.1382552057389743426e-11};
    const Wide z = r * r;
    const Wide one = Splat<Wide>(1);
    // sin(r + low) = sin r + low cos r, cos(r + low) = cos r - low sin r
    const Wide bend = Fma(z * r, PolynomialByHalves(z, kSine),
                          low * Fma(z, Splat<Wide>(-0.5), one));
    sine = z == 0 ? r : r + bend;
    const Wide half = z * 0.5;
    const Wide rest = one - half;
    const Wide tail = Fma(z * z, PolynomialByHalves(z, kCosine), -(r * low));
    cosine = rest + (((one - rest) - half) + tail);
  }
  Vector<int64_t> quadrant;
  Wide sine;
  Wide cosine;
};

struct SineOf {
  template <typename Turns>
  static Vector<double> Of(const Turns& t) {
    const Vector<double> v = (t.quadrant & 1) != 0 ? t.cosine : t.sine;
    return BitCast<Vector<double>>(BitCast<Vector<int64_t>>(v) ^
                                   ((t.quadrant & 2) << 62));
  }
  static double Of(double x) { return std::sin(x); }
};
struct CosineOf {
  template <typename Turns>
  static Vector<double> Of(const Turns& t) {
    const Vector<double> v = (t.quadrant & 1) != 0 ? t.sine : t.cosine;
    return BitCast<Vector<double>>(BitCast<Vector<int64_t>>(v) ^
                                   (((t.quadrant + 1) & 2) << 62));
  }
  static double Of(double x) { return std::cos(x); }
};
struct TangentOf {
  template <typename Turns>
  static Vector<double> Of(const Turns& t) {
    const auto odd = (t.quadrant & 1) != 0;
    return (odd ? -t.cosine : t.sine) / (odd ? t.sine : t.cosine);
  }
  static double Of(double x) { return std::tan(x); }
};

// GCC 12 would convert halves.
inline Vector<double> Widened(const auto& x) {
#if IPU_AVX512
  if constexpr (sizeof(Element<std::remove_cvref_t<decltype(x)>>) == 4) {
    return BitCast<Vector<double>>(_mm512_cvtps_pd(BitCast<__m256>(x)));
  }
#endif
  return ConvertLanes<double>(x);
}

// The results, of which those of arguments above `largest` are computed by the
// C library.
template <typename Function, typename V>
[[gnu::noinline]] V OfLarge(V results, Vector<double> x, double largest) {
  for (int i = 0; i < kSize<V>; ++i) {
    if (std::abs(x[i]) > largest) {
      results[i] = static_cast<Element<V>>(Function::Of(x[i]));
    }
  }
  return results;
}

// A trigonometric function. Lanes too large for the argument reduction are
// computed one by one. Inlined, as a call would pass vectors through memory.
template <typename Function, typename V>
[[gnu::always_inline]] inline V Trigonometric(const V& x) {
  constexpr bool kF32 = std::is_same_v<Element<V>, float>;
  using Turns = std::conditional_t<kF32, QuarterTurnsF32, QuarterTurnsF64>;
  const Vector<double> wide = Widened(x);
  const V results = ConvertLanes<Element<V>>(Function::Of(Turns(wide)));
  if (Any(AbsFloat::Do(wide) > Turns::kLargest)) [[unlikely]] {
    return OfLarge<Function>(results, wide, Turns::kLargest);
  }
  return results;
}

// The angle of (x, y), computed in doubles.
inline auto Atan2F32(const auto& y_in, const auto& x_in) {
  using V = std::remove_cvref_t<decltype(x_in)>;
  using Wide = Vector<double>;
  const Wide x = ConvertLanes<double>(x_in);
  const Wide y = ConvertLanes<double>(y_in);
  const Wide width = AbsFloat::Do(x);
  const Wide height = AbsFloat::Do(y);
  const auto steep = height > width;
  const Wide above = steep ? width : height;
  const Wide below = steep ? height : width;
  // If both are 0 or both infinite, the quotient is defined as 0 or 1.
  Wide q = above / below;
  q = above == below ? (below == 0 ? Wide{} : Splat<Wide>(1)) : q;
  // (atan q / q - 1) / q^2
  static constexpr double kSeries[] = {
      -0.33333333145415343602,   0.1999995952523309625,
      -0.14284271600435440819,   0.11090977092997500645,
      -0.089456529903343444238,  0.070715293341344843813,
      -0.04962815326807741577,   0.026961446503741516819,
      -0.0094929725438352925694, 0.0015657624229998741308};
  const Wide z = q * q;
  Wide angle = Fma(q * z, Polynomial(z, kSeries), q);
  angle = steep ? 1.5707963267948965580 - angle : angle;
  angle =
      BitCast<Vector<int64_t>>(x) < 0 ? 3.1415926535897931160 - angle : angle;
  const Wide nan = Splat<Wide>(std::numeric_limits<double>::quiet_NaN());
  angle = (x != x) | (y != y) ? nan : angle;
  return __builtin_convertvector(WithSignOf(angle, y), V);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_TRIGONOMETRY_H_
