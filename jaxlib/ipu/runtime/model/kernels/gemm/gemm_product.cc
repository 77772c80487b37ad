#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

using Loops = std::vector<ProductLoop>;

int64_t Extent(const Loops& loops) {
  int64_t extent = 1;
  for (const ProductLoop& loop : loops) extent *= loop.extent;
  return extent;
}

Axis AxisOf(const Loops& loops, int64_t ProductLoop::* stride) {
  std::vector<Loop> of_one;
  for (const ProductLoop& loop : loops) {
    of_one.push_back({loop.extent, loop.*stride});
  }
  return Axis(of_one);
}

// The innermost loops along which the result is evenly spaced: their number and
// their total extent.
std::pair<size_t, int64_t> EvenSuffix(const Loops& loops) {
  int64_t extent = 1;
  size_t count = 0;
  for (size_t i = loops.size(); i-- > 0;) {
    const ProductLoop& last = loops.back();
    if (loops[i].result != last.result * extent) break;
    extent *= loops[i].extent;
    ++count;
  }
  return {count, extent};
}

// Drops loops of extent 1 and sorts the rest by stride, largest first.
template <typename Step>
void Sort(Loops& loops, const Step& step) {
  std::erase_if(loops, [](const ProductLoop& l) { return l.extent == 1; });
  std::stable_sort(
      loops.begin(), loops.end(),
      [&](const auto& a, const auto& b) { return step(a) > step(b); });
}

constexpr int64_t kCacheLine = 64;

// Whether reading rows in the order of the result would use one element of each
// cache line while another loop order uses whole lines, and the result has
// whole lines in each row.
bool ReadsAcrossLines(const Loops& m, const Loops& n, int64_t lhs_bytes,
                      int64_t result_bytes) {
  if (m.size() < 2 || n.empty() || n.back().result != 1 ||
      n.back().extent * result_bytes < kCacheLine) {
    return false;
  }
  const auto within_line = [&](const ProductLoop& l) {
    return l.lhs != 0 && std::abs(l.lhs) * lhs_bytes < kCacheLine;
  };
  return !within_line(m.back()) && std::any_of(m.begin(), m.end(), within_line);
}

// Products with fewer columns than this are not worthwhile: they take longer
// than storing sums with a stride; a guess: one f32 vector.
constexpr int64_t kWorthColumns = 8;

}  // namespace

NormalProduct::NormalProduct(Product p) : adds(p.adds) {
  const auto in_result = [](const ProductLoop& l) {
    return std::abs(l.result);
  };
  Sort(p.m, in_result);
  Sort(p.n, in_result);
  Sort(p.k,
       [](const ProductLoop& l) { return std::abs(l.lhs) + std::abs(l.rhs); });
  Sort(p.batch, in_result);

  // Swap the operands if that makes the result's columns dense, or turns a
  // matrix-vector product into a vector-matrix product.
  const auto dense = [](const Loops& loops) {
    return !loops.empty() && loops.back().result == 1;
  };
  const auto [count, extent] = EvenSuffix(p.m);
  exchanged =
      !p.m.empty() &&
      (p.n.empty() || (dense(p.m) && !dense(p.n) &&
                       (count == p.m.size() || extent >= kWorthColumns)));
  if (exchanged) {
    std::swap(p.m, p.n);
    std::swap(p.lhs, p.rhs);
    for (Loops* loops : {&p.batch, &p.m, &p.n, &p.k}) {
      for (ProductLoop& loop : *loops) std::swap(loop.lhs, loop.rhs);
    }
  }
  // Loops over columns that are not evenly spaced become part of the batch.
  const auto inner = p.n.end() - EvenSuffix(p.n).first;
  p.batch.insert(p.batch.end(), p.n.begin(), inner);
  p.n.erase(p.n.begin(), inner);

  if (ReadsAcrossLines(p.m, p.n, p.lhs.item_size, p.result.item_size)) {
    Sort(p.m, [](const ProductLoop& l) { return std::abs(l.lhs); });
  }

  batch = Extent(p.batch);
  m = Extent(p.m);
  n = Extent(p.n);
  k = Extent(p.k);
  for (Loops* loops : {&p.batch, &p.m, &p.n, &p.k}) {
    if (Extent(*loops) == 0) loops->clear();  // an empty axis has no offsets
  }
  lhs = {p.lhs.dtype,
         p.lhs.item_size,
         p.lhs.constant,
         AxisOf(p.batch, &ProductLoop::lhs),
         AxisOf(p.m, &ProductLoop::lhs),
         AxisOf(p.k, &ProductLoop::lhs)};
  rhs = {p.rhs.dtype,
         p.rhs.item_size,
         p.rhs.constant,
         AxisOf(p.batch, &ProductLoop::rhs),
         AxisOf(p.n, &ProductLoop::rhs),
         AxisOf(p.k, &ProductLoop::rhs)};
  result = {p.result.dtype,
            p.result.item_size,
            p.result.constant,
            AxisOf(p.batch, &ProductLoop::result),
            AxisOf(p.m, &ProductLoop::result),
            AxisOf(p.n, &ProductLoop::result)};
}

}  // namespace ipu::model::IPU_SIMD_NS
