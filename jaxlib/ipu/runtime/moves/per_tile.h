// Numbers that each tile has one of.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_
#define JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// A number for each tile, or one for all of them.
class PerTile {
 public:
  PerTile(int64_t same) : values_{same} {}  // NOLINT: a number is one
  explicit PerTile(Ints values) : values_(std::move(values)) {}

  int64_t operator[](size_t tile) const {
    return values_[values_.size() == 1 ? 0 : tile];
  }
  const Ints& values() const { return values_; }

 private:
  Ints values_;
};

// f(x, ...) for each tile.
template <typename F, typename... Rest>
PerTile Each(F f, const PerTile& first, const Rest&... rest) {
  size_t size = first.values().size();
  ((size = size > 1 ? size : rest.values().size()), ...);
  Ints values(size);
  for (size_t t = 0; t < size; ++t) values[t] = f(first[t], rest[t]...);
  return PerTile(std::move(values));
}

inline PerTile operator*(const PerTile& a, const PerTile& b) {
  return Each([](int64_t x, int64_t y) { return x * y; }, a, b);
}

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_
