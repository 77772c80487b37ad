// Exponentials, with the same operations in the same order as the functions of
// vector_math.h.

#include <bit>
#include <cstdint>
#include <iterator>

#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_math.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"

namespace ipu::model::IPU_SIMD_NS {

void VectorEmitter::Exp(uint32_t w, int d, int a) {
  if (w == 4) return ExpOf<float>(d, a);
#if IPU_AVX512
  return ExpOf<double>(d, a);
#else
  Fail();
#endif
}

// As Exp of whole vectors: with AVX-512 by Exponential, otherwise by ScaledExp.
template <typename T>
void VectorEmitter::ExpOf(int d, int a) {
  using Table = ExpTable<T>;
  using Scale = ExpScale<T>;
  constexpr uint32_t w = sizeof(T);
  constexpr bool kWide = w == 8;
  constexpr VectorOp kMulThenAdd = x86::Wide(x86::kMulThenAdd, kWide);
  constexpr VectorOp kAddProduct = x86::Wide(x86::kAddProduct, kWide);
  constexpr T kRounding = IPU_AVX512 ? kRounder<T> : Scale::kRounderBelow;
  const auto op = [&](VectorOp which, int to, int from, auto number) {
    OpConstant(which, w, to, from, std::bit_cast<Bits<T>>(number));
  };
  const auto polynomial = [&](int to, int x, const auto& c) {
    op(x86::kLoad, to, 0, c[std::size(c) - 1]);
    for (size_t i = std::size(c) - 1; i-- > 0;) op(kMulThenAdd, to, x, c[i]);
  };

  // A bound comes first: of one that is equal or unordered, x is the result.
  const int r = NewRegister(), k = NewRegister(), sum = NewRegister();
  op(x86::kLoad, r, 0, Table::kLowest);
  OpF(x86::kMaxF, w, r, r, a);
  op(x86::kLoad, k, 0, Table::kHighest);
  OpF(x86::kMinF, w, r, k, r);
  op(x86::kLoad, sum, 0, kRounding);
  op(kAddProduct, sum, r, kLog2E<T>);
  op(x86::Float(x86::kSubF, kWide), k, sum, kRounding);
  op(kAddProduct, r, k, -Table::kLn2High);
  op(kAddProduct, r, k, -Table::kLn2Low);
  if constexpr (IPU_AVX512) {
    const int square = sum;
    polynomial(d, r, Table::kSeries);
    OpF(x86::kMulF, w, square, r, r);
    Op(kMulThenAdd, w, d, square, r);
    op(x86::Float(x86::kAddF, kWide), d, d, T{1});
    Op(x86::Wide(x86::kScaleF, kWide), w, d, d, k);
  } else {
    const int factor = k, rest = sum;
    Shift(x86::kLeft, w, rest, sum, kMantissaBits<T>);
    op(x86::kMaxSigned, factor, rest, Scale::kLeast);
    Sub(false, w, rest, rest, factor);
    op(x86::kAdd, rest, rest, Scale::kTwo);
    op(x86::kAdd, factor, factor, Scale::kOne);
    polynomial(d, r, Table::kShortSeries);
    op(kMulThenAdd, d, r, T{1});
    OpF(x86::kMulF, w, r, r, factor);
    Op(kMulThenAdd, w, d, r, factor);
    OpF(x86::kMulF, w, d, d, rest);
  }
  Free(r);
  Free(k);
  Free(sum);
}

void VectorEmitter::Logistic(uint32_t w, int d, int a) {
  const bool wide = w == 8;
  const uint64_t one =
      wide ? std::bit_cast<uint64_t>(1.0) : std::bit_cast<uint32_t>(1.f);
  const int e = NewRegister();
  OpConstant(x86::Wide(x86::kOr, wide), w, e, a, uint64_t{1} << (8 * w - 1));
  Exp(w, e, e);
  const Mask positive = NewMask(w);
  CompareF(positive, w, a, Zero(w), kGeF);
  OpConstant(x86::kLoad, w, d, 0, one);
  Blend(w, positive, d, e, d);
  Free(positive);
  OpConstant(x86::Float(x86::kAddF, wide), w, e, e, one);
  OpF(x86::kDivF, w, d, d, e);
  Free(e);
}

}  // namespace ipu::model::IPU_SIMD_NS
