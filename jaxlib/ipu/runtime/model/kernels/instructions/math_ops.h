// Mathematical functions of floats; used by steps_math_f32.cc and
// steps_math_f64.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_MATH_OPS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_MATH_OPS_H_

#include "jaxlib/ipu/runtime/model/kernels/instructions/trigonometry.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_math.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/packet.h"

namespace ipu::model::IPU_SIMD_NS {

// An operation for RunStep that applies a function to each vector.
template <typename Function>
struct Apply {
  template <typename V>
  static V Do(V a) {
    return Function()(a);
  }
};

template <typename T, typename Function>
MathCode Unary(Function) {
  return CodeOf<Apply<Function>, T, T>();
}

// The same for a function on Eigen packets.
template <typename T, typename Function>
MathCode UnaryOfPackets(Function) {
  return Unary<T>(
      [](auto a) { return FromPacket<decltype(a)>(Function()(ToPacket(a))); });
}

// Computed in doubles internally.
template <typename Function>
struct TrigonometricOp {
  static constexpr size_t kWidestLane = 8;
  template <typename V>
  static V Do(V a) {
    return Trigonometric<Function>(a);
  }
};

// The instructions with one operand; those with two differ by type.
template <typename T>
MathCode FindMath(program::Opcode op) {
  namespace eigen = Eigen::internal;
  using program::Opcode;
  switch (op) {
    case Opcode::kFloor:
      return UnaryOfPackets<T>([](auto a) { return eigen::pfloor(a); });
    case Opcode::kCeil:
      return UnaryOfPackets<T>([](auto a) { return eigen::pceil(a); });
    case Opcode::kRoundAfz:
      return UnaryOfPackets<T>([](auto a) { return eigen::pround(a); });
    case Opcode::kRoundEven:
      return UnaryOfPackets<T>([](auto a) { return eigen::print(a); });
    case Opcode::kCbrt:
      return UnaryOfPackets<T>([](auto a) { return eigen::pcbrt(a); });
    case Opcode::kExp:
      return Unary<T>([](auto a) { return Exp(a); });
    case Opcode::kExpm1:
      return Unary<T>([](auto a) { return Expm1(a); });
    case Opcode::kLog:
      return Unary<T>([](auto a) { return Log(a); });
    case Opcode::kLog1p:
      return Unary<T>([](auto a) { return Log1p(a); });
    case Opcode::kSqrt:
      return Unary<T>([](auto a) { return SquareRoot(a); });
    case Opcode::kRsqrt:
      return Unary<T>([](auto a) { return 1 / SquareRoot(a); });
    case Opcode::kTanh:
      return Unary<T>([](auto a) { return Tanh(a); });
    case Opcode::kLogistic:
      return Unary<T>([](auto a) { return Logistic(a); });
    case Opcode::kSin:
      return CodeOf<TrigonometricOp<SineOf>, T, T>();
    case Opcode::kCos:
      return CodeOf<TrigonometricOp<CosineOf>, T, T>();
    case Opcode::kTan:
      return CodeOf<TrigonometricOp<TangentOf>, T, T>();
    default:
      return {};
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_MATH_OPS_H_
