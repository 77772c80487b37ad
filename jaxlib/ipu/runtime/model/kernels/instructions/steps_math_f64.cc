#include <cmath>

#include "jaxlib/ipu/runtime/model/kernels/instructions/math_ops.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Calls the C library for each element: no vectorised version is as accurate.
template <double (*kFunction)(double, double)>
struct LibraryOp {
  template <typename V>
  static V Do(V a, V b) {
    for (int i = 0; i < kSize<V>; ++i) a[i] = kFunction(a[i], b[i]);
    return a;
  }
};

}  // namespace

MathCode FindMathF64(program::Opcode op) {
  using program::Opcode;
  using T = double;
  switch (op) {
    case Opcode::kPow:
      return CodeOf<LibraryOp<::pow>, T, T, T>();
    case Opcode::kAtan2:
      return CodeOf<LibraryOp<::atan2>, T, T, T>();
    case Opcode::kRem:
      return CodeOf<LibraryOp<::fmod>, T, T, T>();
    default:
      return FindMath<T>(op);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
