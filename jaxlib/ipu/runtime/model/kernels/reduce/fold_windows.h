// Folds of windows of few elements, as in pooling.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_WINDOWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_WINDOWS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/monoids.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// Folds elements of windows, loaded by Source as register type T, with Op.
template <typename T, typename Op, typename Source>
class WindowFold {
 public:
  static void Fold(const FoldWindows& in) {
    if (in.step == 1 && AreSliding(in)) return SlidingWindows(in);
    if (in.step == 1) return WindowsAll<1>(in);
    if (in.step == 2) return WindowsAll<2>(in);
    WindowsAll<0>(in);
  }

 private:
  static constexpr int kN = kLanes<T>;
  using V = Vector<T>;
  using Item = typename Source::Item;

  static V Apply(V a, V b) { return Op::template Apply<T>(a, b); }

  // No processor recognises the order in which windows read memory. Measured,
  // of distances from 1 to 4 KiB: twice as fast for operands of 13 MB.
  static void FetchAhead(const Item* p) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + 4096);
  }

  // Whether the elements of place k begin other cache lines than those of the
  // place before.
  static bool BeginsLine(const FoldWindows& in, int64_t k) {
    constexpr int64_t kLine = 64 / sizeof(Item);
    return k == 0 || std::abs(in.places[k] - in.places[k - 1]) >= kLine;
  }

  // n elements that are kStep apart, or `step` if that is 0. At least one more
  // follows if kStep is 2.
  template <int kStep>
  static V LoadApart(const Item* p, int64_t step, int64_t n,
                     const Mask<T>& mask) {
    if constexpr (kStep == 1) {
      if (n == kN) return Source::Whole(p);
      return Source::Some(p, mask, n, V{});
    }
    alignas(64) Item lanes[kN] = {};
    if constexpr (kStep == 2) {
      using Items = Vector<Item, kN>;
      Store(lanes, EvenLanes(Load<Items>(p), Load<Items>(p + kN),
                             std::make_integer_sequence<int, kN>()));
    } else {
      for (int64_t i = 0; i < n; ++i) lanes[i] = p[i * step];
    }
    return Source::Whole(lanes);
  }

  template <typename Items, int... k>
  static Items EvenLanes(Items a, Items b, std::integer_sequence<int, k...>) {
    return __builtin_shufflevector(a, b, 2 * k...);
  }

  // What a fold of a window's first elements begins with: a sum of -0 alone is
  // +0.
  static V First(const V& elements) {
    if constexpr (std::is_same_v<Op, Sum> && std::is_floating_point_v<T>) {
      return elements + V{};
    } else {
      return elements;
    }
  }

  // Folds windows i to i + n.
  template <int kStep>
  static void WindowsFrom(const FoldWindows& in, int64_t i, int64_t n) {
    const Item* p = reinterpret_cast<const Item*>(in.values) + i * in.step;
    Item* to = reinterpret_cast<Item*>(in.to) + i;
    const Mask<T> mask(n);
    V folded = First(LoadApart<kStep>(p + in.places[0], in.step, n, mask));
    for (int64_t k = 1; k < in.num_places; ++k) {
      folded =
          Apply(folded, LoadApart<kStep>(p + in.places[k], in.step, n, mask));
    }
    if (n == kN) return Source::Put(to, folded);
    alignas(64) Item lanes[kN];
    Source::Put(lanes, folded);
    std::copy_n(lanes, n, to);
  }

  // Folds kTogether adjacent windows, all elements of a place in one go.
  static constexpr int kVectors = 4, kTogether = kVectors * kN;
  static void WindowsTogether(const FoldWindows& in, int64_t i) {
    const Item* p = reinterpret_cast<const Item*>(in.values) + i;
    Item* to = reinterpret_cast<Item*>(in.to) + i;
    V folded[kVectors];
    for (int64_t k = 0; k < in.num_places; ++k) {
      const Item* const from = p + in.places[k];
      if (BeginsLine(in, k)) {
        for (int c = 0; c < kVectors; ++c) FetchAhead(from + c * kN);
      }
      for (int c = 0; c < kVectors; ++c) {
        const V next = Source::Whole(from + c * kN);
        folded[c] = k == 0 ? First(next) : Apply(folded[c], next);
      }
    }
    for (int c = 0; c < kVectors; ++c) Source::Put(to + c * kN, folded[c]);
  }

  template <int kStep>
  static void WindowsAll(const FoldWindows& in) {
    int64_t i = 0;
    if constexpr (kStep == 1) {
      for (; i + kTogether <= in.count; i += kTogether) WindowsTogether(in, i);
      if (i == in.count) return;
    }
    for (; i + kN < in.count; i += kN) WindowsFrom<kStep>(in, i, kN);
    // A vector of elements two apart might reach beyond the last of them.
    WindowsFrom<kStep == 2 ? 0 : kStep>(in, i, in.count - i);
  }

  // Whether windows have adjacent elements, and enough of them for
  // SlidingWindows. Measured (256 rows of 512 f32, AVX2, one core): sums of 20
  // and 64 took 114 and 131 us instead of 354 and 984.
  static bool AreSliding(const FoldWindows& in) {
    if (in.num_places < kFewestSliding || in.num_places > kMostSliding) {
      return false;
    }
    for (int64_t k = 0; k < in.num_places; ++k) {
      if (in.places[k] != k) return false;
    }
    return true;
  }
  // A guess, and a limit: other plans take windows of more elements.
  static constexpr int64_t kFewestSliding = 8, kMostSliding = 64;

  // Folds windows of adjacent elements, each of which begins one element after
  // the one before: folds of 1, 2, 4, ... elements from each element on, of
  // which a window has one for each binary digit of its length.
  static void SlidingWindows(const FoldWindows& in) {
    constexpr int64_t kBlock = 32 * kN;  // a few KiB; a guess
    alignas(64) T parts[kBlock + kMostSliding + kN] = {};
    alignas(64) T windows[kBlock];
    const Item* const from = reinterpret_cast<const Item*>(in.values);
    Item* const to = reinterpret_cast<Item*>(in.to);
    for (int64_t begin = 0; begin < in.count; begin += kBlock) {
      const int64_t n = std::min(kBlock, in.count - begin);
      int64_t length = n + in.num_places - 1;
      ForVectors(length, [&](int64_t i, int64_t left) {
        const Item* const p = from + begin + i;
        Store(parts + i,
              First(left < kN ? Source::Some(p, Mask<T>(left), left, V{})
                              : Source::Whole(p)));
      });
      const auto at = [&](int64_t i) { return Load<V>(parts + i); };
      int64_t taken = 0;  // elements of each window
      for (int64_t size = 1;; size *= 2) {
        if (in.num_places & size) {
          ForVectors(n, [&](int64_t i, int64_t) {
            const V part = at(i + taken);
            Store(windows + i,
                  taken == 0 ? part : Apply(Load<V>(windows + i), part));
          });
          taken += size;
        }
        if (taken == in.num_places) break;
        length -= size;
        ForVectors(length, [&](int64_t i, int64_t) {
          Store(parts + i, Apply(at(i), at(i + size)));
        });
      }
      ForVectors(n, [&](int64_t i, int64_t left) {
        const V window = Load<V>(windows + i);
        if (left >= kN) return Source::Put(to + begin + i, window);
        alignas(64) Item lanes[kN];
        Source::Put(lanes, window);
        std::copy_n(lanes, left, to + begin + i);
      });
    }
  }

  // Calls f for each vector of n elements, with how many are left.
  template <typename F>
  static void ForVectors(int64_t n, const F& f) {
    for (int64_t i = 0; i < n; i += kN) f(i, n - i);
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_WINDOWS_H_
