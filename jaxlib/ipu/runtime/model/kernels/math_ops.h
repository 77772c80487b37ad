// The functions of floats as operations of steps; see steps_math_f32.cc and
// steps_math_f64.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_MATH_OPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_MATH_OPS_H_

#include "jaxlib/ipu/runtime/model/kernels/packet.h"
#include "jaxlib/ipu/runtime/model/kernels/step.h"
#include "jaxlib/ipu/runtime/model/kernels/trigonometry.h"
#include "jaxlib/ipu/runtime/model/kernels/vector_math.h"

namespace ipu::model::IPU_SIMD_NS {

struct FloorOp {
  template <typename V>
  static V Do(V a) {
    return FromPacket<V>(Eigen::internal::pfloor(ToPacket(a)));
  }
};
struct CeilOp {
  template <typename V>
  static V Do(V a) {
    return FromPacket<V>(Eigen::internal::pceil(ToPacket(a)));
  }
};
struct RoundAfzOp {
  template <typename V>
  static V Do(V a) {
    return FromPacket<V>(Eigen::internal::pround(ToPacket(a)));
  }
};
struct RoundEvenOp {
  template <typename V>
  static V Do(V a) {
    return FromPacket<V>(Eigen::internal::print(ToPacket(a)));
  }
};
struct CbrtOp {
  template <typename V>
  static V Do(V a) {
    return FromPacket<V>(Eigen::internal::pcbrt(ToPacket(a)));
  }
};
struct RsqrtOp {
  template <typename V>
  static V Do(V a) {
    return 1 / SquareRoot(a);
  }
};
struct SqrtOp {
  template <typename V>
  static V Do(V a) {
    return SquareRoot(a);
  }
};
struct ExpOp {
  template <typename V>
  static V Do(V a) {
    return Exp(a);
  }
};
struct Expm1Op {
  template <typename V>
  static V Do(V a) {
    return Expm1(a);
  }
};
struct LogOp {
  template <typename V>
  static V Do(V a) {
    return Log(a);
  }
};
struct Log1pOp {
  template <typename V>
  static V Do(V a) {
    return Log1p(a);
  }
};
struct TanhOp {
  template <typename V>
  static V Do(V a) {
    return Tanh(a);
  }
};
struct LogisticOp {
  template <typename V>
  static V Do(V a) {
    return Logistic(a);
  }
};

// These work on doubles inside.
template <typename Function>
struct TrigonometricOp {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a) {
    return Trigonometric<Function>(a);
  }
};

// The instructions of one operand, and none of two.
template <typename T>
StepFn FindMath(program::Opcode op) {
  using program::Opcode;
  switch (op) {
    case Opcode::kFloor:
      return RunStep<FloorOp, T, T>;
    case Opcode::kCeil:
      return RunStep<CeilOp, T, T>;
    case Opcode::kRoundAfz:
      return RunStep<RoundAfzOp, T, T>;
    case Opcode::kRoundEven:
      return RunStep<RoundEvenOp, T, T>;
    case Opcode::kExp:
      return RunStep<ExpOp, T, T>;
    case Opcode::kExpm1:
      return RunStep<Expm1Op, T, T>;
    case Opcode::kLog:
      return RunStep<LogOp, T, T>;
    case Opcode::kLog1p:
      return RunStep<Log1pOp, T, T>;
    case Opcode::kSqrt:
      return RunStep<SqrtOp, T, T>;
    case Opcode::kRsqrt:
      return RunStep<RsqrtOp, T, T>;
    case Opcode::kCbrt:
      return RunStep<CbrtOp, T, T>;
    case Opcode::kSin:
      return RunStep<TrigonometricOp<SineOf>, T, T>;
    case Opcode::kCos:
      return RunStep<TrigonometricOp<CosineOf>, T, T>;
    case Opcode::kTan:
      return RunStep<TrigonometricOp<TangentOf>, T, T>;
    case Opcode::kTanh:
      return RunStep<TanhOp, T, T>;
    case Opcode::kLogistic:
      return RunStep<LogisticOp, T, T>;
    default:
      return nullptr;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_MATH_OPS_H_
