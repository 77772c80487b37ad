// Chooses the kernels by what the processor says it can do.

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model {

const Factories* BestFactories() {
  // The x86-64-v4 and v3 levels, which are what the two variants are built for.
  static const Factories* const best = []() -> const Factories* {
    const bool v3 = __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    return v4 ? &avx512::Table() : v3 ? &avx2::Table() : nullptr;
  }();
  return best;
}

}  // namespace ipu::model
