// Bits of 16-bit floats that a program takes apart or puts together.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_FLOAT_BITS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_FLOAT_BITS_H_

#include "jaxlib/ipu/runtime/model/kernels/evaluate/evaluator.h"

namespace ipu::model::IPU_SIMD_NS {

// Loads bits of operands, and stores those of results, as integers instead of
// converting them from and to floats of 32 bits. An operand of which the floats
// are used, too, is loaded twice.
void MoveFloatBits(Evaluation& evaluation);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_EVALUATE_FLOAT_BITS_H_
