// The kernels of this build, one set per instruction set.
//
// Kernel sources (below model/kernels, codelets/*.cc) are compiled once for
// each; IPU_SIMD_NS names the variant's namespace. The loader picks one table
// at start-up.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

// Copies one view over another of the same shape and item size.
struct CopyPlan {
  View source;
  View destination;
};

// A loop without control flow inside.
struct ScalarLoopParts {
  std::vector<const Kernel*> condition;
  std::vector<const Kernel*> body;
  const View* predicate;                 // null: a given number of trips
  const std::vector<uint32_t>& storage;  // as for ScheduleCopies
};

struct Factories {
  // The kernel of a codelet: MakeKernel of its fields (kernels/codelets.h).
  KernelOr (*kernel)(const ComputeSet&, const program::Fields&);
  KernelOr (*copy)(std::vector<CopyPlan>);
  // Null if a part of the loop works on more than single elements.
  std::unique_ptr<ScalarLoop> (*scalar_loop)(const ScalarLoopParts&);
};

namespace avx2 {
const Factories& Table();
}
namespace avx512 {
const Factories& Table();
}

// The fastest table this processor can run, null if there is none: a processor
// from before AVX2.
const Factories* BestFactories();

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_FACTORIES_H_
