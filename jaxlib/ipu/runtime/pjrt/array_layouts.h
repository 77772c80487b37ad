// Arrays whose layout is not the one that a program wants.
//
// An array keeps its tile mapping between programs. A program may want an
// argument in another one (lower/consumer_layouts.py): then the array moves
// before the run, by way of the default layout, and is there from then on. On
// the model nothing moves, since its memory knows no tiles; the run is charged
// for it.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// The arguments of a call that have to move before it, and what that costs.
struct ArgumentMoves {
  std::vector<size_t> numbers;
  std::vector<SramMove> moves;
  double cycles = 0;
  double exchange_bytes = 0;
};

// Under the device's dispatch lock, as `Apply`.
ArgumentMoves FindMoves(const Executable& executable,
                        std::span<PJRT_Buffer* const> arguments);

// The arrays are where the program wants them.
void Apply(const ArgumentMoves& moves, const Executable& executable,
           std::span<PJRT_Buffer* const> arguments);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_
