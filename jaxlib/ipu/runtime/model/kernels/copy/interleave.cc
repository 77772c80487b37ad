#include "jaxlib/ipu/runtime/model/kernels/copy/interleave.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/copy/dims.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// A limit: these have functions.
constexpr size_t kMostSources = 4;

// The lanes of result j of kSources vectors a that take from vector k, of what
// has been put together of those before it (or, of the second, the first).
template <typename Item, size_t kSources, size_t kJ, size_t kK>
constexpr auto LanesFrom() {
  constexpr int kN = kLanes<Item>;
  return []<int... t>(std::integer_sequence<int, t...>) {
    const auto lane = [](int i) {
      const int at = static_cast<int>(kJ) * kN + i;
      const size_t source = at % kSources;
      if (source == kK) return kN + at / static_cast<int>(kSources);
      return kK == 1 && source == 0 ? at / static_cast<int>(kSources) : i;
    };
    return Vector<Item, kN>{static_cast<Item>(lane(t))...};
  }(std::make_integer_sequence<int, kN>());
}

template <typename Item, size_t kSources>
void InterleaveItems(const char* const* sources, int64_t begin, int64_t end,
                     char* to) {
  constexpr int64_t kN = kLanes<Item>;
  to += begin * sizeof(Item) * kSources;
  int64_t i = begin;
  for (; i + kN <= end; i += kN) {
    Vector<Item, kN> in[kSources];
    for (size_t k = 0; k < kSources; ++k) {
      in[k] = Load<Vector<Item, kN>>(sources[k] + i * sizeof(Item));
    }
    [&]<size_t... j>(std::index_sequence<j...>) {
      const auto result = [&]<size_t kJ>() {
        Vector<Item, kN> out = in[0];
        [&]<size_t... k>(std::index_sequence<k...>) {
          ((out = __builtin_shuffle(out, in[k + 1],
                                    LanesFrom<Item, kSources, kJ, k + 1>())),
           ...);
        }(std::make_index_sequence<kSources - 1>());
        Store(to + kJ * sizeof out, out);
      };
      (result.template operator()<j>(), ...);
    }(std::make_index_sequence<kSources>());
    to += kSources * kN * sizeof(Item);
  }
  for (; i < end; ++i) {
    for (size_t k = 0; k < kSources; ++k) {
      std::memcpy(to, sources[k] + i * sizeof(Item), sizeof(Item));
      to += sizeof(Item);
    }
  }
}

}  // namespace

Interleave::Function Interleave::Find(size_t sources, uint32_t item_size) {
  const auto of = [sources]<typename Item>(Item) -> Function {
    switch (sources) {
      case 2:
        return InterleaveItems<Item, 2>;
      case 3:
        return InterleaveItems<Item, 3>;
      case 4:
        return InterleaveItems<Item, 4>;
      default:
        return nullptr;
    }
  };
  if (item_size == 4) return of(uint32_t{});
  return item_size == 8 ? of(uint64_t{}) : nullptr;
}

std::optional<Interleave> Interleave::Make(const std::vector<CopyPlan>& plans) {
  if (plans.size() < 2 || plans.size() > kMostSources) return std::nullopt;
  const int64_t item = plans[0].source.item_size;
  const auto step = static_cast<int64_t>(plans.size()) * item;
  Interleave made;
  made.function_ = Find(plans.size(), plans[0].source.item_size);
  if (made.function_ == nullptr) return std::nullopt;
  made.row_bytes_ = step;
  struct One {
    int64_t to;
    Source source;
  };
  std::vector<One> all;
  for (const CopyPlan& plan : plans) {
    if (plan.source.item_size != item ||
        plan.destination.base != plans[0].destination.base) {
      return std::nullopt;
    }
    const Nest nest = MakeNest(item, plan.source.shape, plan.source.strides,
                               plan.destination.strides);
    if (nest.dims.size() != 1 || nest.dims[0].source != item ||
        nest.dims[0].destination != step || nest.source_offset != 0 ||
        nest.destination_offset != 0 ||
        (made.count_ != 0 && made.count_ != nest.dims[0].extent)) {
      return std::nullopt;
    }
    made.count_ = nest.dims[0].extent;
    all.push_back(
        {plan.destination.offset, {plan.source.base, plan.source.offset}});
  }
  std::sort(all.begin(), all.end(),
            [](const One& a, const One& b) { return a.to < b.to; });
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k].to != all[0].to + static_cast<int64_t>(k) * item) {
      return std::nullopt;
    }
    made.sources_.push_back(all[k].source);
  }
  made.to_ = {plans[0].destination.base, all[0].to};
  return made;
}

void Interleave::Run(const Memory& memory, ThreadPool& threads) const {
  const char* sources[kMostSources];
  for (size_t k = 0; k < sources_.size(); ++k) {
    sources[k] = memory.bases[sources_[k].base] + sources_[k].offset;
  }
  char* const to = memory.bases[to_.base] + to_.offset;
  threads.For(
      count_, StridedCopy::kParallelBytes / 2 / row_bytes_,
      [&](int64_t begin, int64_t end) { function_(sources, begin, end, to); });
}

}  // namespace ipu::model::IPU_SIMD_NS
