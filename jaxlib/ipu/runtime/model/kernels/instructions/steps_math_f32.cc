#include <cmath>

#include "jaxlib/ipu/runtime/model/kernels/instructions/math_ops.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

struct PowOp {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a, V b) {
    return PowF32(a, b);
  }
};

struct Atan2Op {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a, V b) {
    return Atan2F32(a, b);
  }
};

// Computed in doubles. While the quotient is below 2^29, its integral part is
// exact, and so is the remainder. (The integral part could only be wrong if the
// quotient were within a relative 2^-53 of an integer; the quotient of two
// floats is an integer or farther away from one.)
struct RemOp {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a, V b) {
    using Wide = Vector<double>;
    const Wide x = ConvertLanes<double>(a);
    const Wide y = ConvertLanes<double>(b);
    const Wide quotient = x / y;
    const Wide whole =
        FromPacket<Wide>(Eigen::internal::ptrunc(ToPacket(quotient)));
    Wide rest = x - whole * y;
    rest = AbsFloat::Do(y) == kInfinity<double> ? x + quotient : rest;
    V result = WithSignOf(ConvertLanes<float>(AbsFloat::Do(rest)), a);
    const auto large = AbsFloat::Do(quotient) >= 1 << 29;
    if (Any(large)) [[unlikely]] {
      for (int i = 0; i < kSize<V>; ++i) {
        if (large[i]) result[i] = std::fmod(a[i], b[i]);
      }
    }
    return result;
  }
};

}  // namespace

MathCode FindMathF32(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kPow:
      return CodeOf<PowOp, float, float, float>();
    case Opcode::kAtan2:
      return CodeOf<Atan2Op, float, float, float>();
    case Opcode::kRem:
      return CodeOf<RemOp, float, float, float>();
    default:
      return FindMath<float>(op);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
