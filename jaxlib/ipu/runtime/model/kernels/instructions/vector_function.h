// Instructions as functions of vectors, for machine code that holds its values
// in registers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_FUNCTION_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_FUNCTION_H_

#include <algorithm>
#include <cstddef>

#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// Entry points of functions that take and return vectors as the C ABI passes
// them: operand k in vector register k, the result in register 0. No vector
// register is kept. Null: there is no such function.
struct VectorFunction {
  const void* few = nullptr;  // of up to `num_few` lanes
  const void* all = nullptr;  // of as many as a register has of the widest type
  int num_few = 0;

  const void* Of(int lanes) const { return lanes <= num_few ? few : all; }
};

// An instruction in both forms, which give the same bits.
struct MathCode {
  StepFn step = nullptr;
  VectorFunction function;
};

// Applies Op to a register's kAll lanes, kN of them at a time.
template <typename Op, int kN, int kAll, typename R, typename... T>
struct OnRegisters {
  static Vector<R, kAll> Do(Vector<T, kAll>... operands) {
    if constexpr (kN == kAll) {
      return Op::Do(operands...);
    } else {
      Vector<R, kAll> result;
      for (int i = 0; i < kAll; i += kN) {
        const auto part = [i]<typename V>(const V& v) {
          return Load<Vector<Element<V>, kN>>(
              reinterpret_cast<const Element<V>*>(&v) + i);
        };
        Store(reinterpret_cast<R*>(&result) + i, Op::Do(part(operands)...));
      }
      return result;
    }
  }
};

// The code of R <- Op::Do(T...), which takes no immediate.
template <typename Op, typename R, typename... T>
MathCode CodeOf() {
  constexpr int kN = kVectorBytes / WidestLane<Op, R, T...>();
  constexpr int kAll = kVectorBytes / std::max({sizeof(R), sizeof(T)...});
  const auto entry = [](auto* function) {
    return reinterpret_cast<const void*>(function);
  };
  return {RunStep<Op, R, T...>,
          {entry(OnRegisters<Op, kN, kN, R, T...>::Do),
           entry(OnRegisters<Op, kN, kAll, R, T...>::Do), kN}};
}

// The functions that no single machine instruction computes; empty for others.
MathCode FindMathF32(program::Opcode op);
MathCode FindMathF64(program::Opcode op);
MathCode FindMathI32(program::Opcode op);
MathCode FindMathU32(program::Opcode op);
MathCode FindMathI64(program::Opcode op);
MathCode FindMathU64(program::Opcode op);

// The function of an instruction; empty if it has none.
VectorFunction FindFunction(const program::Instruction& instruction);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_VECTOR_FUNCTION_H_
