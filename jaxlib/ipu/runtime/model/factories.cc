// Finds the kernels for the processor's instruction sets at run time.

#include "jaxlib/ipu/runtime/model/factories.h"

#include <vector>

namespace ipu::model {

const std::vector<const Factories*>& SupportedFactories() {
  // x86-64-v3 and -v4, the levels that the two variants are compiled for.
  static const auto* const supported = [] {
    auto* const tables = new std::vector<const Factories*>;
    const bool v3 = __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
    if (v3) tables->push_back(&avx2::Table());
#ifndef IPU_NO_AVX512_KERNELS
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    if (v4) tables->push_back(&avx512::Table());
#endif
    return tables;
  }();
  return *supported;
}

}  // namespace ipu::model
