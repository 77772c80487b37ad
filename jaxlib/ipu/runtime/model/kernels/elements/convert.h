// Element types to register values and back, for dense runs of elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_

#include <cstdint>

namespace ipu::model::IPU_SIMD_NS {

using ConvertFn = void (*)(const void* from, void* to, int64_t n);

// Elements of `dtype` into its register type (program::RegisterTypeOf); null
// where the two are the same.
ConvertFn FindLoad(uint8_t dtype);

// The other way: integers are cut, floats rounded to nearest, ties to even.
ConvertFn FindStore(uint8_t dtype);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_
