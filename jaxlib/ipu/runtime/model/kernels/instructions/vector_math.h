// Vectorised exponentials, logarithms and powers.
//
// Each function reduces its argument to a small interval, on which a polynomial
// is as accurate as the type. The polynomials are minimax approximations (Remez
// algorithm) of the function stated in the comment, evaluated by Horner's rule
// with fused multiply-adds. Errors are at most 3 units in the last place,
// mostly below 1.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_MATH_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_MATH_H_

#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/instructions/arithmetic_float.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

// c[0] + c[1] x + c[2] x^2 + ...
template <typename V, size_t n>
inline V Polynomial(const V& x, const Element<V> (&c)[n]) {
  V sum = Splat<V>(c[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = Fma(sum, x, Splat<V>(c[i]));
  return sum;
}

// The same in an order in which fewer operations wait for others: pairs of
// terms, then pairs of pairs.
template <typename V, typename Coefficients>
[[gnu::always_inline]] inline V PolynomialByHalves(const V& x,
                                                   const Coefficients& c) {
  constexpr size_t n = std::size(Coefficients{});
  V terms[n];
  for (size_t i = 0; i < n; ++i) terms[i] = Splat<V>(c[i]);
  V power = x;
  for (size_t left = n; left > 1;
       left = (left + 1) / 2, power = power * power) {
    for (size_t i = 0; i < left / 2; ++i) {
      terms[i] = Fma(terms[2 * i + 1], power, terms[2 * i]);
    }
    if (left % 2 == 1) terms[left / 2] = terms[left - 1];
  }
  return terms[0];
}

// Gives `result` the sign of x, which is its own if it is negative.
template <typename V>
inline V WithSignOf(const V& result, const V& x) {
  using B = BitsOf<V>;
  return BitCast<V>(BitCast<B>(result) |
                    (BitCast<B>(x) & kSignBit<Element<V>>));
}

// Adding and subtracting 1.5 * 2^mantissa rounds to the nearest integer; the
// low bits of the sum are that integer.
template <typename T>
inline constexpr T kRounder =
    static_cast<T>(Bits<T>{3} << (kMantissaBits<T> - 1));

template <typename V>
struct Rounded {
  using Integer = Vector<SignedBits<Element<V>>, kSize<V>>;
  explicit Rounded(const V& x) : Rounded(Sum{x + kRounder<Element<V>>}) {}
  // Of x * factor, which is not rounded before.
  Rounded(const V& x, Element<V> factor)
      : Rounded(Sum{Fma(x, Splat<V>(factor), Splat<V>(kRounder<Element<V>>))}) {
  }
  // 2^integer, in the exponent range of normal numbers: the other bits of the
  // sum are shifted out.
  V Power() const {
    using T = Element<V>;
    return BitCast<V>((sum << kMantissaBits<T>)+std::bit_cast<Bits<T>>(T{1}));
  }
  // 2^-integer, in the same range.
  V InversePower() const {
    using T = Element<V>;
    return BitCast<V>(std::bit_cast<Bits<T>>(T{1}) - (sum << kMantissaBits<T>));
  }
  V value;
  BitsOf<V> sum;
  Integer integer;

 private:
  struct Sum {
    V value;
  };
  explicit Rounded(const Sum& s)
      : value(s.value - kRounder<Element<V>>),
        sum(BitCast<BitsOf<V>>(s.value)),
        integer(BitCast<Integer>(
            sum - std::bit_cast<Bits<Element<V>>>(kRounder<Element<V>>))) {}
};

// x, but not above `most`; keeps NaN. As AtLeast.
template <typename V>
inline V AtMost(const V& x, Element<V> most) {
  [[maybe_unused]] constexpr bool kF32 = std::is_same_v<Element<V>, float>;
  const V bound = Splat<V>(most);
#if IPU_AVX512
  if constexpr (sizeof(V) == 64 && kF32) {
    return BitCast<V>(
        _mm512_min_ps(BitCast<__m512>(bound), BitCast<__m512>(x)));
  } else if constexpr (sizeof(V) == 64) {
    return BitCast<V>(
        _mm512_min_pd(BitCast<__m512d>(bound), BitCast<__m512d>(x)));
  }
#endif
#ifdef __AVX__
  if constexpr (sizeof(V) == 32 && kF32) {
    return BitCast<V>(
        _mm256_min_ps(BitCast<__m256>(bound), BitCast<__m256>(x)));
  } else if constexpr (sizeof(V) == 32) {
    return BitCast<V>(
        _mm256_min_pd(BitCast<__m256d>(bound), BitCast<__m256d>(x)));
  }
#endif
  return x > bound ? bound : x;
}

// --- Exponentials ------------------------------------------------------------

template <typename T>
inline constexpr T kLog2E = T(1.4426950408889634074);

template <typename T>
struct ExpTable;

template <>
struct ExpTable<float> {
  static constexpr float kLowest = -105, kHighest = 89;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.1219444e-4f;
  // (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2
  static constexpr float kSeries[] = {
      0.50000000135423458052,   0.16666666757086083972,
      0.04166646417688746997,   0.0083332857788389865532,
      0.0013933732522009659444, 0.00019907742414513916831};
  // The same in a power less, where the result is 1 + r + ...
  static constexpr float kShortSeries[] = {
      0.4999999343212021, 0.16666520399057466, 0.041668390785523826,
      0.008368745107493086, 0.0013814540073503426};
};

template <>
struct ExpTable<double> {
  static constexpr double kLowest = -746, kHighest = 710;
  static constexpr double kLn2High = 0.69314718055989033019;
  static constexpr double kLn2Low = 5.4979230187083711552e-14;
  static constexpr double kSeries[] = {
      0.49999999999999999997,   0.16666666666666671029,
      0.041666666666666683933,  0.0083333333333260835737,
      0.0013888888888874309916, 0.00019841269875000571334,
      2.4801587347540497761e-5, 2.7557255172174531284e-6,
      2.7557252725999753401e-7, 2.510531186166863532e-8,
      2.092165019078789913e-9};
  static constexpr auto& kShortSeries = kSeries;
};

// The integers of ScaledExp, exponents in their place in a float.
template <typename T>
struct ExpScale {
  using I = SignedBits<T>;
  static constexpr I kOne = std::bit_cast<I>(T{1});
  static constexpr I kTwo = std::bit_cast<I>(T{2});
  // The sum's low bits are k - 1.
  static constexpr T kRounderBelow = kRounder<T> - 1;
  // Any k below which no normal number is, with room for the others below it.
  static constexpr I kLeast =
      (sizeof(T) == 8 ? -1000 : -100) * (I{1} << kMantissaBits<T>);
};

// e^x = 2^k (1 + tail)
template <typename V>
struct Exponential {
  explicit Exponential(V x) {
    using T = Element<V>;
    using Table = ExpTable<T>;
    x = AtLeast(x, Table::kLowest);
    x = AtMost(x, Table::kHighest);
    const Rounded<V> rounded(x, kLog2E<T>);
    k = rounded.integer;
    value = rounded.value;
    const V high = Fma(rounded.value, Splat<V>(-Table::kLn2High), x);
    const V r = Fma(rounded.value, Splat<V>(-Table::kLn2Low), high);
    tail = Fma(r * r, Polynomial(r, Table::kSeries), r);
  }
  typename Rounded<V>::Integer k;
  V value;  // k
  V tail;
};

// 2^k, for a k in the exponent range of normal numbers.
template <typename V>
inline V PowerOfTwo(const typename Rounded<V>::Integer& k) {
  using T = Element<V>;
  return BitCast<V>((k << kMantissaBits<T>)+BitCast<SignedBits<T>>(T{1}));
}

// e^x = 2^k e^r, where 2^k is the product of two factors, to reach denormals
// and infinity: `factor` is the exact power of two for all but the smallest k,
// halved, so that it is finite.
template <typename V>
inline V ScaledExp(V x) {
  using T = Element<V>;
  using Table = ExpTable<T>;
  using Scale = ExpScale<T>;
  using I = typename Rounded<V>::Integer;
  x = AtMost(AtLeast(x, Table::kLowest), Table::kHighest);
  const V sum = Fma(x, Splat<V>(kLog2E<T>), Splat<V>(Scale::kRounderBelow));
  const V k = sum - Scale::kRounderBelow;
  const V high = Fma(k, Splat<V>(-Table::kLn2High), x);
  const V r = Fma(k, Splat<V>(-Table::kLn2Low), high);
  const I exponent = BitCast<I>(sum) << kMantissaBits<T>;
  const I least = Splat<I>(Scale::kLeast);
  const I most = exponent > least ? exponent : least;
  const V factor = BitCast<V>(most + Scale::kOne);
  const V rest = BitCast<V>(exponent - most + Scale::kTwo);
  V p = Polynomial(r, Table::kShortSeries);
  p = Fma(p, r, Splat<V>(T{1}));
  return Fma(p, r * factor, factor) * rest;
}

template <typename V>
inline V Exp(const V& x) {
#if IPU_AVX512  // one instruction, which rounds once
  if constexpr (sizeof(V) == 64) {
    const Exponential<V> e(x);
    if constexpr (std::is_same_v<Element<V>, float>) {
      return BitCast<V>(_mm512_scalef_ps(BitCast<__m512>(V{e.tail + 1}),
                                         BitCast<__m512>(e.value)));
    } else {
      return BitCast<V>(_mm512_scalef_pd(BitCast<__m512d>(V{e.tail + 1}),
                                         BitCast<__m512d>(e.value)));
    }
  }
#endif
  return ScaledExp(x);
}

template <typename V>
inline V Expm1(const V& x) {
  const Exponential<V> e(x);
  // 2^(k - 1) is representable for every relevant k; below those, the result is
  // -1.
  using T = Element<V>;
  // A limit of the format.
  constexpr int kSmallest = 2 - (1 << (8 * sizeof(T) - 2 - kMantissaBits<T>));
  const auto exponent = e.k - 1 < kSmallest ? (e.k ^ e.k) + kSmallest : e.k - 1;
  const V scale = PowerOfTwo<V>(exponent);
  const V result = Fma(e.tail, scale, scale - T(0.5)) * 2;
  return WithSignOf(e.k == 0 ? e.tail : result, x);
}

// With x = k ln(2) / 2 + h, t = tanh(h) and s = 2^-k, where |h| <= ln(2) / 4:
// tanh(x) = ((1 - s) + t (1 + s)) / ((1 + s) + t (1 - s)). A loop may wait for
// each result, so that what counts is the longest chain of operations.
inline auto TanhF32(const auto& x) {
  using V = std::remove_cvref_t<decltype(x)>;
  constexpr float kHighest = 9.02f;  // from here on the result is 1
  constexpr float kHalfLn2 = 0.34657359028f;
  // (tanh(h) - h) / h^3
  static constexpr float kSeries[] = {-0.33333322f, 0.13331142f, -0.052715283f};
  const V y = AtLeast(AtMost(x, kHighest), -kHighest);
  const Rounded<V> k(y, 2 * kLog2E<float>);
  // What ln(2) is rounded by is 2^-5 units of a result for k = 1, and less for
  // others.
  const V h = Fma(k.value, Splat<V>(-kHalfLn2), y);
  const V z = h * h;
  const V t = Fma(Polynomial(z, kSeries), h * z, h);
  const V s = k.InversePower();
  const V less = 1 - s, more = 1 + s;
  return WithSignOf(Fma(t, more, less) / Fma(t, less, more), x);
}

// tanh |x| = (1 - e^(-2 |x|)) / (1 + e^(-2 |x|))
inline auto TanhF64(const auto& x) {
  using V = std::remove_cvref_t<decltype(x)>;
  using Table = ExpTable<double>;
  constexpr double kLowest = -20;  // up to here the result is -1 or 1
  const V y = AtLeast(NegateFloat::Do(AbsFloat::Do(x)), kLowest);
  const Rounded<V> rounded(y, 2 * kLog2E<double>);
  V r = Fma(rounded.value, Splat<V>(-Table::kLn2High), V{y * 2});
  r = Fma(rounded.value, Splat<V>(-Table::kLn2Low), r);
  // e^(2 y) = 2^k (1 + tail)
  const V tail = Fma(r * r, PolynomialByHalves(r, Table::kSeries), r);
  const V scale = rounded.Power();
  // 1 - e^(2 y) and 1 + e^(2 y), each rounded once.
  const V less = Fma(tail, -scale, 1 - scale);
  const V more = Fma(tail, scale, 1 + scale);
  return WithSignOf(less / more, x);
}

template <typename V>
inline V Tanh(const V& x) {
  if constexpr (std::is_same_v<Element<V>, float>) {
    return TanhF32(x);
  } else {
    return TanhF64(x);
  }
}

// 1 / (1 + e^-x), without an overflow on either side.
template <typename V>
inline V Logistic(const V& x) {
  const V e = Exp(NegateFloat::Do(AbsFloat::Do(x)));
  return (x >= 0 ? Splat<V>(1) : e) / (e + 1);
}

// --- Logarithms --------------------------------------------------------------

// log(2^k (1 + f)) for sqrt(1/2) <= 1 + f < sqrt(2)
inline auto LogOf(const auto& f, const auto& k) {
  using V = std::remove_cvref_t<decltype(f)>;
  if constexpr (std::is_same_v<Element<V>, float>) {
    // (log(1 + f) - f + f^2 / 2) / f^3
    static constexpr float kSeries[] = {
        0.33333331256298033312, -0.2499998118335172567,
        0.2000068820627205017,  -0.16669151391639515208,
        0.14251151238678547299, -0.12396687749394435711,
        0.1163469896811608792,  -0.11660044041953315879,
        0.073325670375717375473};
    const V square = f * f;
    V sum = f * square * PolynomialByHalves(f, kSeries);
    sum = Fma(k, Splat<V>(ExpTable<float>::kLn2Low), sum);
    sum = Fma(square, Splat<V>(-0.5f), sum);
    return Fma(k, Splat<V>(ExpTable<float>::kLn2High), f + sum);
  } else {
    // With s = f / (2 + f), log(1 + f) = log(1 + s) - log(1 - s), and
    // (log(1 + s) - log(1 - s) - 2 s) / s^3 is a polynomial of z = s^2.
    static constexpr double kSeries[] = {
        0.66666666666666697276, 0.39999999999899483838, 0.28571428626381844421,
        0.22222211075669333213, 0.18182893012775736961, 0.15331603805995152478,
        0.14617788078707936268};
    const V s = f / (f + 2);
    const V z = s * s;
    const V half_square = f * f * 0.5;
    const V low = Fma(s, Fma(z, Polynomial(z, kSeries), half_square),
                      k * ExpTable<double>::kLn2Low);
    return Fma(k, Splat<V>(ExpTable<double>::kLn2High),
               f - (half_square - low));
  }
}

// x = 2^k m with sqrt(1/2) <= m < sqrt(2), for normal positive x
template <typename V>
struct Split {
  using Integer = typename Rounded<V>::Integer;
  explicit Split(const V& x) {
    using T = Element<V>;
    constexpr auto kRootHalf =
        std::bit_cast<Bits<T>>(T(0.70710678118654752440));
    const BitsOf<V> bits = BitCast<BitsOf<V>>(x);
    integer = BitCast<Integer>(bits - kRootHalf) >> kMantissaBits<T>;
    m = BitCast<V>(bits - (BitCast<BitsOf<V>>(integer) << kMantissaBits<T>));
    k = ConvertLanes<T>(integer);
  }
  Integer integer;
  V k;
  V m;
};

template <typename V>
inline V LogOfAny(const V& x) {
  using T = Element<V>;
  constexpr T kNormal = std::numeric_limits<T>::min();
  constexpr int kShift = kMantissaBits<T> + 2;
  constexpr T kUp = static_cast<T>(Bits<T>{1} << kShift);
  const auto small = x < kNormal;
  const Split<V> split(small ? x * kUp : x);
  const V k = small ? split.k - T(kShift) : split.k;
  V result = LogOf(split.m - 1, k);
  result = x < kInfinity<T> ? result : x;  // passes NaN through
  const V of_zero = x == 0 ? Splat<V>(-kInfinity<T>)
                           : Splat<V>(std::numeric_limits<T>::quiet_NaN());
  return x <= 0 ? of_zero : result;
}

// Most vectors are of normal positive numbers. Measured: 0.54 ns an element
// instead of 0.74 (f32, AVX2).
template <typename V>
inline V Log(const V& x) {
  using T = Element<V>;
  const auto normal = (x >= std::numeric_limits<T>::min()) & (x < kInfinity<T>);
  if (Any(~normal)) [[unlikely]] {
    return LogOfAny(x);
  }
  const Split<V> split(x);
  return LogOf(split.m - 1, split.k);
}

template <typename V>
inline V Log1p(const V& x) {
  using T = Element<V>;
  const V u = x + 1;
  const Split<V> split(u);
  // Adds the rounding error of u, scaled to m (for large k it is negligible).
  // If k is 0, f is x itself.
  const V lost = x - (u - 1);
  const auto log = [&](const auto& k) {
    const V f =
        split.integer == 0 ? x : Fma(lost, PowerOfTwo<V>(-k), split.m - 1);
    return WithSignOf(LogOf(f, split.k), x);
  };
  // A limit, far below that of k for which 2^-k is a normal number.
  constexpr T kLarge = 1 << 30;
  if (!Any(~((x > -1) & (x < kLarge)))) [[likely]] {
    return log(split.integer);
  }
  const auto k = split.integer < 64 ? split.integer : (split.integer & 0) + 64;
  V result = log(k);
  result = x < kInfinity<T> ? result : x;
  const V of_minus_one = x == -1
                             ? Splat<V>(-kInfinity<T>)
                             : Splat<V>(std::numeric_limits<T>::quiet_NaN());
  return x <= -1 ? of_minus_one : result;
}

// --- Powers ------------------------------------------------------------------

// x^y = e^(y log |x|), computed in doubles, with the sign and the special cases
// of C's pow.
inline auto PowF32(const auto& x, const auto& y) {
  using V = std::remove_cvref_t<decltype(x)>;
  using Wide = Vector<double>;
  const Wide base = ConvertLanes<double>(x);
  const Wide exponent = ConvertLanes<double>(y);
  const Wide size = AbsFloat::Do(base);
  Wide power = Exp(exponent * Log(size));
  // Floats of at least 2^24 are even integers; infinity counts as even.
  const Wide half = exponent * 0.5;
  const Rounded<Wide> whole(exponent);
  const Rounded<Wide> half_whole(half);
  const auto huge = AbsFloat::Do(exponent) >= 16777216.0;
  const auto integral = huge | (whole.value == exponent);
  const auto odd = integral & ~(huge | (half_whole.value == half));
  const auto negative = BitCast<Vector<int64_t>>(base) < 0;
  const Wide nan = Splat<Wide>(std::numeric_limits<double>::quiet_NaN());
  power = (base < 0) & (size < kInfinity<double>)&~integral ? nan : power;
  power = negative & odd ? -power : power;
  const auto one =
      (base == 1) | (exponent == 0) |
      ((base == -1) & (AbsFloat::Do(exponent) == kInfinity<double>));
  return __builtin_convertvector(one ? Splat<Wide>(1) : power, V);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_MATH_H_
