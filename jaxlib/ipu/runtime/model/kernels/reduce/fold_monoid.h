// The folds of monoids: sums, products, extrema and bitwise operations.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_MONOID_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_MONOID_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_source.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/monoids.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// Folds elements, loaded by Source as register type T, with Op.
template <typename T, typename Op, typename Source = Plain<T>>
class MonoidFold {
 public:
  // Long float sums stay accurate because block sums are added in double.
  using Total =
      std::conditional_t<std::is_same_v<T, float> && std::is_same_v<Op, Sum>,
                         double, T>;

  static const Fold* Get() {
    static constexpr Fold kFold = {.total_size = sizeof(Total),
                                   .start = Start,
                                   .rows = Rows,
                                   .columns = Columns,
                                   .merge = Merge,
                                   .finish = Finish,
                                   .windows = kWindows};
    return &kFold;
  }

  static constexpr int kN = kLanes<T>;
  using V = Vector<T>;
  using Item = typename Source::Item;

  // Elements that are folded in T before they are added to a total.
  static constexpr int64_t kRun = 4096;

  static T Apply(T a, T b) { return Op::template Apply<T>(a, b); }
  static V Apply(V a, V b) { return Op::template Apply<T>(a, b); }

  // How far from an element the one is that is needed some microseconds later,
  // in elements: processors fetch pages that they have not seen too late.
  // Measured, of distances from 512 bytes to 8 KiB: maxima of rows of 8 KiB
  // took 0.30 ms instead of 0.54 for 16 MiB that were in no cache, and the same
  // if they were in the third-level one.
  static int64_t Ahead(int64_t step, int64_t columns) {
    constexpr int64_t kFar = 8192 / sizeof(Item);
    if (columns == 0 || columns >= kFar) return kFar;
    return (kFar + columns - 1) / columns * step;
  }

  // Folds `n` elements into the lanes of one vector. `ahead`: see Ahead.
  static V FoldRun(const Item* p, int64_t n, int64_t ahead) {
    const V identity = Broadcast<T>(Op::template kIdentity<T>);
    if (n <= kN) return Source::Some(p, Mask<T>(n), n, identity);
    constexpr int kChains = 8;
    V folded = identity;
    int64_t i = 0;
    if (n >= kChains * kN) {
      V chains[kChains];
      for (int c = 0; c < kChains; ++c) chains[c] = Source::Whole(p + c * kN);
      for (i = kChains * kN; i + kChains * kN <= n; i += kChains * kN) {
        Prefetch(p + i + ahead);
#pragma GCC unroll 8
        for (int c = 0; c < kChains; ++c) {
          chains[c] = Apply(chains[c], Source::Whole(p + i + c * kN));
        }
      }
      for (int width = kChains / 2; width > 0; width /= 2) {
        for (int c = 0; c < width; ++c) {
          chains[c] = Apply(chains[c], chains[c + width]);
        }
      }
      folded = chains[0];
    }
    for (; i + kN <= n; i += kN) folded = Apply(folded, Source::Whole(p + i));
    if (i < n) {
      folded =
          Apply(folded, Source::Some(p + i, Mask<T>(n - i), n - i, identity));
    }
    return folded;
  }

  // Prefetches the elements of one round of FoldRun.
  static void Prefetch(const Item* p) {
    constexpr int64_t kBytes = 8 * kN * sizeof(Item);
#pragma GCC unroll 8
    for (int64_t at = 0; at < kBytes; at += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(p) + at);
    }
  }

  // The same for as many rows as a vector has lanes, each into a vector.
  static void FoldEach(const Item* row, int64_t step, int64_t n, V* rows) {
    if (n > kN) {
      const int64_t ahead = Ahead(step, n);
      for (int i = 0; i < kN; ++i) rows[i] = FoldRun(row + i * step, n, ahead);
      return;
    }
    const V identity = Broadcast<T>(Op::template kIdentity<T>);
    const Mask<T> mask(n);
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) {
      rows[i] = Source::Some(row + i * step, mask, n, identity);
    }
  }

  // W: a vector of any number of lanes.
  template <typename W>
  static T FoldLanes(W v) {
    T lanes[kSize<W>];
    Store(lanes, v);
#pragma GCC unroll 4
    for (int width = kSize<W> / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i)
        lanes[i] = Apply(lanes[i], lanes[i + width]);
    }
    return lanes[0];
  }

  // Lane i of the result folds the lanes of rows[i].
  template <typename W>
  static W FoldLanesOfEach(W* rows) {
    FoldHalves<kSize<W> / 2>(rows);
    return rows[0];
  }

 private:
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

  static void Windows(const FoldWindows& in) {
    if (in.step == 1 && AreSliding(in)) return SlidingWindows(in);
    if (in.step == 1) return WindowsAll<1>(in);
    if (in.step == 2) return WindowsAll<2>(in);
    WindowsAll<0>(in);
  }

  // Squares are not stored.
  static constexpr auto kWindows = [] {
    if constexpr (requires { &Source::Put; }) {
      return &Windows;
    } else {
      return static_cast<void (*)(const FoldWindows&)>(nullptr);
    }
  }();

  // rows[i] and rows[i + kBlock] hold groups of 2 * kBlock lanes, one group per
  // row. Folds the halves of each group and interleaves the groups of both
  // vectors.
  template <int kBlock, typename W>
  static void FoldHalves(W* rows) {
    constexpr auto kPositions = std::make_integer_sequence<int, kSize<W>>();
    for (int i = 0; i < kBlock; ++i) {
      const W low = Pick<kBlock, 0>(rows[i], rows[i + kBlock], kPositions);
      const W high =
          Pick<kBlock, kBlock>(rows[i], rows[i + kBlock], kPositions);
      rows[i] = Op::template Apply<T>(low, high);
    }
    if constexpr (kBlock > 1) FoldHalves<kBlock / 2>(rows);
  }

  template <int kBlock, int kOffset, typename W, int... positions>
  static W Pick(W a, W b, std::integer_sequence<int, positions...>) {
    return __builtin_shufflevector(a, b,
                                   (positions / kBlock % 2 * kSize<W> +
                                    positions / kBlock / 2 * 2 * kBlock +
                                    kOffset + positions % kBlock)...);
  }

  static void Start(int64_t n, char* totals) {
    std::fill_n(reinterpret_cast<Total*>(totals), n,
                Op::template kIdentity<Total>);
  }

  static void Add(const T* from, int64_t n, Total* totals) {
    for (int64_t i = 0; i < n; ++i) {
      totals[i] = Op::template Apply<Total>(totals[i], Total{from[i]});
    }
  }

  // Lane i of the result folds row i of kN adjacent ones of kColumns elements,
  // in the order of FoldLanesOfEach.
  template <int kColumns>
  static V FoldAdjacent(const Item* from) {
    V parts[kColumns];
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) parts[i] = Source::Whole(from + i * kN);
    constexpr auto kLanes = std::make_integer_sequence<int, kN>();
    if constexpr (kColumns == 3) {
      return Apply(
          Apply(EveryThird<0>(parts, kLanes), EveryThird<2>(parts, kLanes)),
          EveryThird<1>(parts, kLanes));
    } else {
      // Each part has kN / kColumns rows, and the folds of the parts' first
      // rows come first.
      FoldHalves<kColumns / 2>(parts);
      return Interleave<kColumns>(parts[0], kLanes);
    }
  }

  // Lane i of the result is element 3 * i + kFirst of three vectors.
  template <int kFirst, int... lanes>
  static V EveryThird(const V* parts, std::integer_sequence<int, lanes...>) {
    const V front = __builtin_shufflevector(
        parts[0], parts[1],
        (3 * lanes + kFirst < 2 * kN ? 3 * lanes + kFirst : -1)...);
    return __builtin_shufflevector(
        front, parts[2],
        (3 * lanes + kFirst < 2 * kN ? lanes : 3 * lanes + kFirst - kN)...);
  }

  // Takes one lane of each of kGroups groups after another.
  template <int kGroups, int... lanes>
  static V Interleave(V v, std::integer_sequence<int, lanes...>) {
    constexpr int kEach = kN / kGroups;
    return __builtin_shufflevector(
        v, v, (lanes % kEach * kGroups + lanes / kEach)...);
  }

  // The same for rows of up to half a vector, `step` apart. Each vector takes
  // two rows, as FoldHalves leaves them after its first round.
  static V FoldShortRows(const Item* row, int64_t step, int64_t n) {
    constexpr int kHalf = kN / 2;
    const Mask<T> low(n), high(n, kHalf);
    V rows[kHalf];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i, row += step) {
      rows[i] =
          Source::Some(row, low, n, Broadcast<T>(Op::template kIdentity<T>));
      rows[i] = Source::Some(row + kHalf * step - kHalf, high, n, rows[i]);
    }
    FoldHalves<kHalf / 2>(rows);
    return rows[0];
  }

  // Folds kN rows at a time by fold(row), and returns how many.
  template <typename Fold>
  static int64_t RowsTogether(const FoldInput& input, Total* totals,
                              const Fold& fold) {
    const Item* row = reinterpret_cast<const Item*>(input.values);
    int64_t r = 0;
    for (; r + kN <= input.rows; r += kN, row += kN * input.step) {
      T folded[kN];
      Store(folded, fold(row));
      Add(folded, kN, totals + r);
    }
    return r;
  }

  static int64_t RowsTogether(const FoldInput& input, Total* totals) {
    const int64_t columns = input.columns;
    if (input.step == columns) {
      if (columns == 2) return RowsTogether(input, totals, FoldAdjacent<2>);
      if constexpr (kN >= 4) {
        if (columns == 3) return RowsTogether(input, totals, FoldAdjacent<3>);
        if (columns == 4) return RowsTogether(input, totals, FoldAdjacent<4>);
      }
      if constexpr (kN >= 8) {
        if (columns == 8) return RowsTogether(input, totals, FoldAdjacent<8>);
      }
    }
    if constexpr (std::is_same_v<Item, T> && kN >= 4) {
      if (columns <= kN / 2) {
        return RowsTogether(input, totals, [&](const Item* row) {
          return FoldShortRows(row, input.step, columns);
        });
      }
    }
    return RowsTogether(input, totals, [&](const Item* row) {
      V rows[kN];
      FoldEach(row, input.step, columns, rows);
      return FoldLanesOfEach(rows);
    });
  }

  static void Rows(const FoldInput& input, char* to) {
    const Item* row = reinterpret_cast<const Item*>(input.values);
    Total* totals = reinterpret_cast<Total*>(to);
    int64_t r = 0;
    if (input.columns <= kRun) r = RowsTogether(input, totals);
    row += r * input.step;
    const int64_t ahead = Ahead(input.step, input.columns);
    for (; r < input.rows; ++r, row += input.step) {
      for (int64_t i = 0; i < input.columns; i += kRun) {
        const T folded = FoldLanes(
            FoldRun(row + i, std::min(kRun, input.columns - i), ahead));
        Add(&folded, 1, totals + r);
      }
    }
  }

  // to[c] = the fold of to[c] and kRows elements of column c.
  template <int kRows>
  static void AddRows(const Item* from, int64_t step, int64_t columns, T* to) {
    int64_t c = 0;
    for (; c + kN <= columns; c += kN) {
      V folded = Source::Whole(from + c);
#pragma GCC unroll 8
      for (int r = 1; r < kRows; ++r) {
        folded = Apply(folded, Source::Whole(from + r * step + c));
      }
      Store(to + c, Apply(Load<V>(to + c), folded));
    }
    if (c == columns) return;
    const Mask<T> mask(columns - c);
    const V identity = Broadcast<T>(Op::template kIdentity<T>);
    V folded = mask.Load(to + c);
    for (int r = 0; r < kRows; ++r) {
      folded = Apply(folded, Source::Some(from + r * step + c, mask,
                                          columns - c, identity));
    }
    mask.Store(to + c, folded);
  }

  static constexpr int64_t kColumns = 1024;
  static constexpr int64_t kRows = 512;

  static void FoldColumns(const Item* from, int64_t rows, int64_t step,
                          int64_t columns, T* to) {
    std::fill_n(to, columns, Op::template kIdentity<T>);
    constexpr int kGroup = 8;
    int64_t r = 0;
    for (; r + kGroup <= rows; r += kGroup) {
      AddRows<kGroup>(from + r * step, step, columns, to);
    }
    for (; r < rows; ++r) AddRows<1>(from + r * step, step, columns, to);
  }

  static void Columns(const FoldInput& input, char* to) {
    const Item* from = reinterpret_cast<const Item*>(input.values);
    Total* totals = reinterpret_cast<Total*>(to);
    if constexpr (std::is_same_v<Source, Plain<T>>) {
      if (input.rows == 1) return Add(from, input.columns, totals);
    }
    alignas(64) T folded[kColumns];
    int64_t done = 0;
    // Fold several short dense rows at a time, as one longer row.
    const int64_t together = kColumns / 4 / std::max<int64_t>(input.columns, 1);
    if (input.step == input.columns && together > 1) {
      const int64_t columns = together * input.columns;
      for (; done + together <= input.rows;) {
        const int64_t rows = std::min(kRows, (input.rows - done) / together);
        FoldColumns(from + done * input.step, rows, columns, columns, folded);
        for (int64_t i = 0; i < together; ++i) {
          Add(folded + i * input.columns, input.columns, totals);
        }
        done += rows * together;
      }
    }
    for (; done < input.rows; done += kRows) {
      const int64_t rows = std::min(kRows, input.rows - done);
      for (int64_t c = 0; c < input.columns; c += kColumns) {
        const int64_t columns = std::min(kColumns, input.columns - c);
        FoldColumns(from + done * input.step + c, rows, input.step, columns,
                    folded);
        Add(folded, columns, totals + c);
      }
    }
  }

  static void Merge(const char* from, int64_t n, char* to) {
    const Total* more = reinterpret_cast<const Total*>(from);
    Total* totals = reinterpret_cast<Total*>(to);
    for (int64_t i = 0; i < n; ++i) {
      totals[i] = Op::template Apply<Total>(totals[i], more[i]);
    }
  }

  static void Finish(const char* from, int64_t n, const FoldOutput* output) {
    // Integers are truncated, whether signed or not.
    using Stored = RunOf<T>;
    const Total* totals = reinterpret_cast<const Total*>(from);
    const StoreRun<Stored> store = StoreRunOf<Stored>(output->dtype);
    const int64_t step = output->stride * ItemSize(output->dtype);
    constexpr int64_t kBlock = 256;
    Stored values[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t size = std::min(kBlock, n - i);
      for (int64_t j = 0; j < size; ++j) {
        values[j] = static_cast<Stored>(static_cast<T>(totals[i + j]));
      }
      store(values, size, output->data + i * step, output->stride);
    }
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_MONOID_H_
