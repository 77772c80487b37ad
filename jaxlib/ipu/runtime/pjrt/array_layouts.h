// Moves arguments to the layouts that a program expects.
//
// An array keeps its tile mapping between programs. A program may expect an
// argument in another one (lower/consumer_layouts.py): the array then moves
// before the run, through the default layout, and stays there. The model's
// memory knows no tiles, so nothing is copied; the run is charged for the
// exchange.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu {

// The arguments of a call that have to move first, and the cost of that.
struct ArgumentMoves {
  std::vector<size_t> numbers;
  std::vector<SramMove> moves;
  double cycles = 0;
  double exchange_bytes = 0;
};

// Requires the device's dispatch lock, as does `Apply`.
ArgumentMoves FindMoves(const Executable& executable,
                        std::span<PJRT_Buffer* const> arguments);

// Records that the arrays now have the program's layouts.
void Apply(const ArgumentMoves& moves, const Executable& executable,
           std::span<PJRT_Buffer* const> arguments);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_ARRAY_LAYOUTS_H_
