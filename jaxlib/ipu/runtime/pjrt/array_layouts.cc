#include "jaxlib/ipu/runtime/pjrt/array_layouts.h"

#include <algorithm>

namespace ipu {
namespace {

bool Same(const ArrayLayoutPtr& a, const ArrayLayoutPtr& b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && a->mapping == b->mapping;
}

}  // namespace

ArgumentMoves FindMoves(const Executable& executable,
                        std::span<PJRT_Buffer* const> arguments) {
  ArgumentMoves found;
  const std::vector<TensorInfo>& wanted = executable.info().arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArrayLayoutPtr& here = arguments[i]->layout;
    const ArrayLayoutPtr& there = wanted[i].layout;
    if (Same(here, there)) [[likely]]
      continue;
    const auto moves_both = [&](size_t j) {
      return arguments[j] == arguments[i] && Same(wanted[j].layout, there);
    };
    if (std::any_of(found.numbers.begin(), found.numbers.end(), moves_both))
      continue;
    if (here != nullptr) {
      found.cycles += here->cycles_to_default;
      found.exchange_bytes += here->bytes_to_default;
    }
    if (there != nullptr) {
      found.cycles += there->cycles_from_default;
      found.exchange_bytes += there->bytes_from_default;
    }
    found.numbers.push_back(i);
    found.moves.push_back(
        {arguments[i]->resident(), executable.argument_tile_bytes(i), there});
  }
  return found;
}

void Apply(const ArgumentMoves& moves, const Executable& executable,
           std::span<PJRT_Buffer* const> arguments) {
  for (size_t i : moves.numbers) {
    arguments[i]->layout = executable.info().arguments[i].layout;
  }
}

}  // namespace ipu
