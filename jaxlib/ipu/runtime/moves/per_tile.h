// Numbers that each tile has one of.

#ifndef JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_
#define JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "jaxlib/ipu/runtime/moves/layout.h"

namespace ipu::moves {

// A number for each tile, or one for all of them. Copies share the numbers,
// which do not change.
class PerTile {
 public:
  PerTile(int64_t same) : same_(same) {}  // NOLINT: a number is one
  explicit PerTile(Ints values)
      : values_(std::make_shared<const Ints>(std::move(values))) {}

  int64_t operator[](size_t tile) const {
    return values_ ? (*values_)[tile] : same_;
  }
  // How many numbers there are.
  size_t size() const { return values_ ? values_->size() : 1; }
  bool IsOne() const { return !values_ && same_ == 1; }

 private:
  int64_t same_ = 0;
  std::shared_ptr<const Ints> values_;
};

// f(x, ...) for each tile.
template <typename F, typename... Rest>
PerTile Each(F f, const PerTile& first, const Rest&... rest) {
  size_t size = first.size();
  ((size = size > 1 ? size : rest.size()), ...);
  if (size == 1) return f(first[0], rest[0]...);
  Ints values(size);
  for (size_t t = 0; t < size; ++t) values[t] = f(first[t], rest[t]...);
  return PerTile(std::move(values));
}

inline PerTile operator*(const PerTile& a, const PerTile& b) {
  if (a.IsOne()) return b;
  if (b.IsOne()) return a;
  return Each([](int64_t x, int64_t y) { return x * y; }, a, b);
}

}  // namespace ipu::moves

#endif  // JAXLIB_IPU_RUNTIME_MOVES_PER_TILE_H_
