#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Guesses: longer groups are much code, and lanes that are further apart need
// more loads than elements loaded one by one. With AVX2, lanes of 4 and 8 bytes
// never do: see InPlace of lane_windows.cc.
constexpr int64_t kMostVectors = 512 / kVectorBytes;
constexpr int64_t kMostSpan = 4 * kVectorBytes;
constexpr int64_t kMostSpanOfWords = IPU_AVX512 ? kMostSpan : 512;

constexpr int kLeastBytes = 16;  // a limit: of a vector register

bool CanShuffle(int64_t item) {
#if IPU_AVX512
  static const bool bytes = __builtin_cpu_supports("avx512vbmi");
  return item > 1 || bytes;
#else
  return true;
#endif
}

bool AreAdjacent(const std::vector<int64_t>& places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != places[0] + static_cast<int64_t>(i)) return false;
  }
  return true;
}

int64_t SpanOf(const std::vector<int64_t>& places) {
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  return *most - *least + 1;
}

}  // namespace

std::vector<int64_t> PlacesOf(const StridedIterator& iterator, int64_t vector,
                              int lanes) {
  std::vector<int64_t> places(lanes);
  for (int i = 0; i < lanes; ++i) {
    places[i] = iterator.PlaceOf(vector * lanes + i);
  }
  return places;
}

int64_t VectorsInGroup(const StridedIterator& iterator, int lanes,
                       int64_t elements) {
  const int64_t item = iterator.item_size();
  if (!CanShuffle(item)) return 0;
  const int64_t unit = std::lcm(elements, int64_t{lanes});
  if (unit > kMostVectors * lanes || iterator.group() > kMostVectors * lanes) {
    return 0;
  }
  const int64_t vectors = std::lcm(unit, iterator.group()) / lanes;
  if (vectors > kMostVectors) return 0;
  if (std::abs(GroupStep(iterator, vectors * lanes)) >
      std::numeric_limits<int32_t>::max() / kMostVectors) {
    return 0;
  }
  const int64_t most = item >= 4 ? kMostSpanOfWords : kMostSpan;
  for (int64_t v = 0; v < vectors; ++v) {
    const std::vector<int64_t> places = PlacesOf(iterator, v, lanes);
    if (!AreAdjacent(places) && SpanOf(places) * item > most) return 0;
  }
  return vectors;
}

int64_t GroupStep(const StridedIterator& iterator, int64_t elements) {
  return elements / iterator.group() * iterator.group_step() *
         iterator.item_size();
}

Address LaneLoads::Load(const StridedIterator& iterator, int64_t vector,
                        bool tail, int reg, Address group) {
#if !IPU_AVX512
  if (tail) return ElementAt(iterator, group);
#endif
  const int64_t item = iterator.item_size();
  const int lanes = emit_.lanes();
  const Places places = PlacesOf(iterator, vector, lanes);
  Address first = group;
  first.offset += static_cast<int32_t>(
      *std::min_element(places.begin(), places.end()) * item);
  if (AreAdjacent(places)) return first;
  if (SpanOf(places) == 1) {
    const VectorOp op = item == 1   ? x86::kBroadcastByte
                        : item == 2 ? x86::kBroadcastWord
                        : item == 4
                            ? x86::kBroadcastLow
                            : x86::Wide(x86::kBroadcastLowWide, IPU_AVX512);
    const auto packed = static_cast<int>(lanes * item);
    body_.Vector(op, Lanes{std::max(packed, kLeastBytes)}, reg, 0, first);
  } else {
    Shuffle(places, item, tail, reg, group);
  }
  return {.base = group.base, .indexed = false, .vector = reg};
}

}  // namespace ipu::model::IPU_SIMD_NS
