#include <cmath>

#include "jaxlib/ipu/runtime/model/kernels/instructions/math_ops.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/steps.h"

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

StepFn FindMathF64(program::Opcode op) {
  using program::Opcode;
  using T = double;
  switch (op) {
    case Opcode::kPow:
      return RunStep<LibraryOp<::pow>, T, T, T>;
    case Opcode::kAtan2:
      return RunStep<LibraryOp<::atan2>, T, T, T>;
    case Opcode::kRem:
      return RunStep<LibraryOp<::fmod>, T, T, T>;
    default:
      return FindMath<T>(op);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
