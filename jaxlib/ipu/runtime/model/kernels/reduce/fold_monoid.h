// The folds of monoids: sums, products, extrema and bitwise operations. Those
// of windows are in fold_windows.h.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_MONOID_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_MONOID_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_source.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_windows.h"
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
      if (n >= 2 * kChains * kN) Prefetch(p + ahead);
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
  // Squares are not stored.
  static constexpr auto kWindows = [] {
    if constexpr (requires { &Source::Put; }) {
      return &WindowFold<T, Op, Source>::Fold;
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
