// Divisions of single integers, in the function of a loop.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_DIVISION_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_DIVISION_H_

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

// Whether a step is the quotient or the remainder of two integers, for which
// the processor has an instruction on general registers only.
bool IsScalarDivision(const TapeStep& s);

// Emits it, of rax and rcx, whose upper halves do not count if they are not
// used. Returns the register of the result, rax or rdx; changes all three.
Gpr DivideGeneral(const TapeStep& s, Assembler& body);
// The same, from vector registers a and b to d.
void DivideScalars(const TapeStep& s, int d, int a, int b, VectorEmitter& emit);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_SCALAR_DIVISION_H_
