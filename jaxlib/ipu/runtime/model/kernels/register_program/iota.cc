#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
void FillIota(int64_t inner, int64_t extent, int64_t begin, int64_t count,
              T* to) {
  int64_t value = begin / inner % extent;
  int64_t left = inner - begin % inner;  // remaining repetitions of this value
  while (count > 0) {
    if (inner == 1) {
      const int64_t run = std::min(count, extent - value);
      for (int64_t i = 0; i < run; ++i) to[i] = static_cast<T>(value + i);
      to += run;
      count -= run;
      value = 0;
    } else {
      const int64_t run = std::min(count, left);
      std::fill_n(to, run, static_cast<T>(value));
      to += run;
      count -= run;
      left = inner;
      if (++value == extent) value = 0;
    }
  }
}

template void FillIota(int64_t, int64_t, int64_t, int64_t, float*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, double*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, uint32_t*);
template void FillIota(int64_t, int64_t, int64_t, int64_t, uint64_t*);

}  // namespace ipu::model::IPU_SIMD_NS
