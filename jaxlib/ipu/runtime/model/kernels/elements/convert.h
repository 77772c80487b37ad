// Conversion of dense arrays between element types and register types. A 16-bit
// float survives a load and a store with all of its bits, NaN included.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

using ConvertFn = void (*)(const void* from, void* to, int64_t n);

// Converts elements of `dtype` to its register type (program::RegisterTypeOf).
// Null if the two are the same.
ConvertFn FindLoad(DType dtype);

// The inverse: integers are truncated, floats rounded to nearest, ties to even.
ConvertFn FindStore(DType dtype);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_CONVERT_H_
