#include "jaxlib/ipu/runtime/plan/functions.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

#include "jaxlib/ipu/runtime/plan/cuts.h"
#include "jaxlib/ipu/runtime/plan/dot_cycles.h"
#include "jaxlib/ipu/runtime/plan/product_splits.h"

namespace {

using ipu::plan::Block;
using ipu::plan::DotUnit;
using ipu::plan::Product;
using ipu::plan::Split;

// Records of numbers alone, as Python passes them.
template <typename T>
bool Read(const double* numbers, size_t count, T* record) {
  static_assert(sizeof(T) % sizeof(double) == 0);
  if (count != sizeof(T) / sizeof(double)) return false;
  std::memcpy(record, numbers, sizeof(T));
  return true;
}

}  // namespace

__attribute__((visibility("default"))) int64_t
ipu_distribute(const int64_t* numbers, size_t count, int64_t* parts) try {
  if (count < 2 || numbers[1] < 1) return -1;
  const std::vector<int64_t> found =
      ipu::plan::Distribute(numbers[0], {numbers + 2, count - 2}, numbers[1]);
  std::copy(found.begin(), found.end(), parts);
  return 0;
} catch (const std::exception&) {
  return -2;
}

__attribute__((visibility("default"))) int64_t
ipu_dot_cycles(const double* numbers, size_t count, double* cycles) {
  struct {
    DotUnit unit;
    Block block;
  } of;
  if (!Read(numbers, count, &of)) return -1;
  const Block turned = of.block.Turned();
  for (const auto function :
       {ipu::plan::AmpCycles, ipu::plan::HmacCycles, ipu::plan::OuterCycles}) {
    *cycles++ = function(of.unit, of.block);
    *cycles++ = function(of.unit, turned);
  }
  *cycles++ = ipu::plan::SharedCycles(
      of.unit, of.block.columns == 1 ? of.block : turned);
  *cycles = ipu::plan::ChainOf(of.unit);
  return 0;
}

__attribute__((visibility("default"))) int64_t ipu_product_splits(
    const double* numbers, size_t count, double* splits, size_t size) try {
  Product product;
  if (!Read(numbers, count, &product)) return -1;
  for (const double n :
       {product.tiles, product.b, product.m, product.n, product.k,
        product.grain_m, product.grain_n, product.grain_k}) {
    if (!(n >= 1)) return -1;
  }
  const std::vector<Split> found = ipu::plan::Rank(product, size);
  for (size_t i = 0; i < std::min(size, found.size()); ++i) {
    const Split& split = found[i];
    for (const int64_t parts : split.parts) *splits++ = parts;
    *splits++ = split.number;
    *splits++ = split.cycles;
    *splits++ = split.bytes;
  }
  return found.size();
} catch (const std::exception&) {
  return -2;
}
