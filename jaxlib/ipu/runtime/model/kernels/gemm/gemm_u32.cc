#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_impl.h"

namespace ipu::model::IPU_SIMD_NS {

template class Gemm<uint32_t>;

}  // namespace ipu::model::IPU_SIMD_NS
