// The folds of ARGMAX and ARGMIN: the extreme value and its index.
//
// NaN is more extreme than any number; among equal values the lowest index
// wins.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_ARG_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_ARG_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T, bool kMax>
class ArgFold {
 public:
  static const Fold* Get() {
    static constexpr Fold kFold = {.total_size = sizeof(Total),
                                   .start = Start,
                                   .rows = Rows,
                                   .columns = Columns,
                                   .merge = Merge,
                                   .finish = Finish};
    return &kFold;
  }

 private:
  struct Total {
    T value;
    int64_t index;
  };
  static_assert(sizeof(Total) == kMostTotalSize);

  using Op = std::conditional_t<kMax, Largest, Smallest>;
  using Values = MonoidFold<T, Op>;
  using V = Vector<T>;
  using Lanes = Vector<SignedBits<T>>;
  static constexpr int kN = kLanes<T>;
  // The index of a total of no elements.
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  // A limit: the numbers of so many rows fit into lanes of the value's width.
  static constexpr int64_t kMostRows = 1 << 30;

  // Rows of at most so many elements are transposed in registers. Measured:
  // 300,000 f32 in rows of 5, 8, 10 and 12 took 97, 87, 79 and 74 us instead of
  // 170, 110, 89 and 76, in rows of 15 and 16 more (AVX-512, one core); with
  // vectors of 8 lanes in no rows less.
  static constexpr int64_t kMostShort = kN >= 16 ? 12 : 0;

  static bool Wins(const Total& a, const Total& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a || nan_b) return nan_a && (!nan_b || a.index < b.index);
    if (a.value == b.value) return a.index < b.index;
    return kMax ? a.value > b.value : a.value < b.value;
  }
  static void Offer(const Total& candidate, Total& total) {
    if (Wins(candidate, total)) total = candidate;
  }

  // Offers elements without indices of their own: element i has the index
  // first + where[i]. As most totals are of no elements yet, they are stored as
  // vectors of words if they can be.
  static void OfferAll(const T* best, const SignedBits<T>* where, int64_t n,
                       int64_t first, Total* totals) {
    int64_t i = 0;
    if constexpr (sizeof(T) == 4) {
      using Words = Vector<uint32_t>;
      constexpr int kValue = offsetof(Total, value) / 4;
      constexpr int kIndex = offsetof(Total, index) / 4;
      const Words none = Broadcast(static_cast<uint32_t>(kNone >> 32));
      for (; first < kMostRows && i + kN <= n; i += kN) {
        auto* const words = reinterpret_cast<uint32_t*>(totals + i);
        const Words high = LoadStrided<4>(words + kIndex + 1);
        if (LaneBits<uint32_t>(high != none) != 0) break;
        Words parts[4] = {};
        parts[kValue] = Load<Words>(best + i);
        parts[kIndex] =
            Load<Words>(where + i) + Broadcast(static_cast<uint32_t>(first));
        StoreStrided<4>(words, parts);
      }
    }
    for (; i < n; ++i) {
      const Total candidate{best[i], first + where[i]};
      Total& total = totals[i];
      if (total.index == kNone || Wins(candidate, total)) total = candidate;
    }
  }

  static void Start(int64_t n, char* totals) {
    std::fill_n(reinterpret_cast<Total*>(totals), n,
                Total{Op::template kIdentity<T>, kNone});
  }

  // The index of the first `value`, which must be among the elements.
  static int64_t Find(const T* p, int64_t n, T value) {
    const V wanted = Broadcast(value);
    const auto bits = [&](V v) {
      if (value != value) [[unlikely]]
        return LaneBits<T>(v != v);
      return LaneBits<T>(v == wanted);
    };
    if (n <= kN) return std::countr_zero(bits(Mask<T>(n).Load(p)));
    // Without a branch for each vector, which would be unpredictable.
    constexpr int64_t kBlock = 64;
    for (int64_t first = 0;; first += kBlock) {
      const int64_t end = std::min(kBlock, n - first);
      uint64_t found = 0;
      int64_t i = 0;
      for (; i + kN <= end; i += kN) {
        found |= uint64_t{bits(Load<V>(p + first + i))} << i;
      }
      if (i < end) {
        const Mask<T> rest(end - i);
        found |= uint64_t{bits(rest.Load(p + first + i))} << i;
      }
      if (found != 0) return first + std::countr_zero(found);
    }
  }

  // Updates the leading elements of several reductions, and their numbers, with
  // the next element of each.
  static void OfferLanes(V v, int64_t number, V& leading, Lanes& lane) {
    Lanes wins = kMax ? v > leading : v < leading;
    if constexpr (std::is_floating_point_v<T>) {
      wins |= (v != v) & (leading == leading);
    }
    leading = wins ? v : leading;
    lane = wins ? Broadcast(static_cast<SignedBits<T>>(number)) : lane;
  }

  // Folds as many rows as a vector has lanes, of at most as many elements.
  static void FoldShort(const T* row, int64_t step, int64_t n, T* best,
                        SignedBits<T>* where) {
    V rows[kN];
    const Mask<T> mask(n);
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) rows[i] = mask.Load(row + i * step);
    TransposeLanes<T>(rows);
    V leading = rows[0];
    Lanes lane = {};
#pragma GCC unroll 16
    for (int k = 1; k < kN; ++k) {
      if (k >= n) break;
      OfferLanes(rows[k], k, leading, lane);
    }
    Store(best, leading);
    Store(where, lane);
  }

  static void Rows(const FoldInput& input, char* to) {
    if (input.indices != nullptr) return Pairs(input, 1, 0, to);
    Total* totals = reinterpret_cast<Total*>(to);
    const T* row = reinterpret_cast<const T*>(input.values);
    const int64_t n = input.columns;
    int64_t r = 0;
    if (input.step == n && IsQuickTransposed(n)) {
      // As columns, as many at a time as are moved well.
      constexpr int64_t kTogether = 64;
      alignas(64) T turned[kMostTransposed * kTogether + kN];
      for (; r < input.rows; r += kTogether) {
        const int64_t rows = std::min(kTogether, input.rows - r);
        TransposeRun(row + r * n, n, rows, n, turned, kTogether);
        Columns({.values = reinterpret_cast<const char*>(turned),
                 .indices = nullptr,
                 .first = input.first,
                 .step = kTogether,
                 .rows = n,
                 .columns = rows},
                to + r * sizeof(Total));
      }
      return;
    }
    if (n <= Values::kRun) {
      for (; r + kN <= input.rows; r += kN, row += kN * input.step) {
        T best[kN];
        SignedBits<T> where[kN];
        if (n <= kMostShort) {
          FoldShort(row, input.step, n, best, where);
        } else {
          V rows[kN];
          Values::FoldEach(row, input.step, n, rows);
          Store(best, Values::FoldLanesOfEach(rows));
          for (int i = 0; i < kN; ++i) {
            where[i] = Find(row + i * input.step, n, best[i]);
          }
        }
        OfferAll(best, where, kN, input.first, totals + r);
      }
    }
    const int64_t ahead = Values::Ahead(input.step, n);
    for (; r < input.rows; ++r, row += input.step) {
      for (int64_t i = 0; i < n; i += Values::kRun) {
        const int64_t size = std::min(Values::kRun, n - i);
        const T best = Values::FoldLanes(Values::FoldRun(row + i, size, ahead));
        // Search only a block that improves the total.
        if (!Wins({best, input.first + i}, totals[r])) continue;
        Offer({best, input.first + i + Find(row + i, size, best)}, totals[r]);
      }
    }
  }

  static void Columns(const FoldInput& input, char* to) {
    if (input.indices != nullptr) return Pairs(input, 0, 1, to);
    Total* totals = reinterpret_cast<Total*>(to);
    constexpr int64_t kColumns = 512, kRows = kMostRows;
    alignas(64) T best[kColumns];
    alignas(64) SignedBits<T> where[kColumns];
    for (int64_t first = 0; first < input.rows; first += kRows) {
      const int64_t rows = std::min(kRows, input.rows - first);
      for (int64_t c = 0; c < input.columns; c += kColumns) {
        const int64_t columns = std::min(kColumns, input.columns - c);
        const T* row =
            reinterpret_cast<const T*>(input.values) + first * input.step + c;
        std::copy_n(row, columns, best);
        std::fill_n(where, columns, 0);
        constexpr int kGroup = 4;
        int64_t r = 1;
        for (; r + kGroup <= rows; r += kGroup) {
          OfferRows<kGroup>(row + r * input.step, input.step, r, columns, best,
                            where);
        }
        for (; r < rows; ++r) {
          OfferRows<1>(row + r * input.step, input.step, r, columns, best,
                       where);
        }
        OfferAll(best, where, columns, input.first + first, totals + c);
      }
    }
  }

  template <int kRows>
  static void OfferRows(const T* from, int64_t step, int64_t number,
                        int64_t columns, T* best, SignedBits<T>* where) {
    int64_t c = 0;
    for (; c + kN <= columns; c += kN) {
      V leading = Load<V>(best + c);
      Lanes lane = Load<Lanes>(where + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        OfferLanes(Load<V>(from + r * step + c), number + r, leading, lane);
      }
      Store(best + c, leading);
      Store(where + c, lane);
    }
    if (c == columns) return;
    const Mask<T> mask(columns - c);
    V leading = Load<V>(best + c);
    Lanes lane = Load<Lanes>(where + c);
    for (int r = 0; r < kRows; ++r) {
      OfferLanes(mask.Load(from + r * step + c), number + r, leading, lane);
    }
    Store(best + c, leading);
    Store(where + c, lane);
  }

  // Elements with explicit indices. An element belongs to total
  // r * row + c * column.
  static void Pairs(const FoldInput& input, int64_t row, int64_t column,
                    char* to) {
    Total* totals = reinterpret_cast<Total*>(to);
    const T* values = reinterpret_cast<const T*>(input.values);
    for (int64_t r = 0; r < input.rows; ++r) {
      for (int64_t c = 0; c < input.columns; ++c) {
        const int64_t i = r * input.step + c;
        Offer({values[i], input.indices[i]}, totals[r * row + c * column]);
      }
    }
  }

  static void Merge(const char* from, int64_t n, char* to) {
    const Total* more = reinterpret_cast<const Total*>(from);
    for (int64_t i = 0; i < n; ++i) {
      Offer(more[i], reinterpret_cast<Total*>(to)[i]);
    }
  }

  static void Finish(const char* from, int64_t n, const FoldOutput* outputs) {
    using Stored = RunOf<T>;
    const Total* totals = reinterpret_cast<const Total*>(from);
    const StoreRun<Stored> store_value = StoreRunOf<Stored>(outputs[0].dtype);
    const StoreRun<uint64_t> store_index =
        StoreRunOf<uint64_t>(outputs[1].dtype);
    const int64_t value_step = outputs[0].stride * ItemSize(outputs[0].dtype);
    const int64_t index_step = outputs[1].stride * ItemSize(outputs[1].dtype);
    constexpr int64_t kBlock = 128;
    Stored values[kBlock];
    uint64_t indices[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t size = std::min(kBlock, n - i);
      for (int64_t j = 0; j < size; ++j) {
        values[j] = static_cast<Stored>(totals[i + j].value);
        indices[j] = totals[i + j].index;
      }
      store_value(values, size, outputs[0].data + i * value_step,
                  outputs[0].stride);
      store_index(indices, size, outputs[1].data + i * index_step,
                  outputs[1].stride);
    }
  }
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_ARG_H_
