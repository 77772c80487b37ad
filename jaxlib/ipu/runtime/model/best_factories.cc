// Selects the kernels for the processor's instruction set at run time.

#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model {

const Factories* BestFactories() {
  // x86-64-v4 and -v3, the levels that the two variants are compiled for.
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
