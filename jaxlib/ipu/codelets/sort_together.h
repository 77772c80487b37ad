// Sorts short rows of equal length together: each lane of a vector belongs to a
// row, and a network of comparators, which does not depend on the elements,
// sorts all lanes alike.

#ifndef JAXLIB_IPU_CODELETS_SORT_TOGETHER_H_
#define JAXLIB_IPU_CODELETS_SORT_TOGETHER_H_

#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

// So many rows fill a vector of 4-byte keys, or several of longer entries, with
// any instruction set.
inline constexpr int64_t kTogether = 16;

// Entries that are one integer each: keys alone, or a key of up to 32 bits
// above its element's index. Entry i of row r is at entries[i * kWords + r].
template <typename Integer>
struct PlainEntries {
  using Word = Integer;
  using V = Vector<Word>;
  static constexpr int64_t kWords = kTogether;
  static constexpr int64_t kVectors = kTogether / kLanes<Word>;

  static V At(const Word* entry, int64_t v) {
    return Load<V>(entry + v * kLanes<Word>);
  }
  static void Set(Word* entry, int64_t v, const V& x) {
    Store(entry + v * kLanes<Word>, x);
  }
  static V Last() { return ~V{}; }
  // The smaller one becomes `a`. GCC makes three instructions of ?: for each.
  static void Exchange(V& a, V& b) {
    const V x = a;
#if IPU_AVX512
    if constexpr (sizeof(Word) == 4) {
      a = (V)_mm512_min_epu32((__m512i)x, (__m512i)b);
      b = (V)_mm512_max_epu32((__m512i)x, (__m512i)b);
    } else {
      a = (V)_mm512_min_epu64((__m512i)x, (__m512i)b);
      b = (V)_mm512_max_epu64((__m512i)x, (__m512i)b);
    }
#else
#ifdef __AVX2__
    if constexpr (sizeof(Word) == 4) {
      a = (V)_mm256_min_epu32((__m256i)x, (__m256i)b);
      b = (V)_mm256_max_epu32((__m256i)x, (__m256i)b);
      return;
    }
#endif
    const auto ordered = x < b;
    a = ordered ? x : b;
    b = ordered ? b : x;
#endif
  }
};

// Entries of a key of 64 bits and an index, which decides between equal keys:
// the indices of entry i follow its keys.
struct WideEntries {
  using Word = uint64_t;
  struct V {
    Vector<Word> key, index;
  };
  static constexpr int64_t kWords = 2 * kTogether;
  static constexpr int64_t kVectors = kTogether / kLanes<Word>;

  static V At(const Word* entry, int64_t v) {
    using Plain = PlainEntries<Word>;
    return {Plain::At(entry, v), Plain::At(entry + kTogether, v)};
  }
  static void Set(Word* entry, int64_t v, const V& x) {
    using Plain = PlainEntries<Word>;
    Plain::Set(entry, v, x.key);
    Plain::Set(entry + kTogether, v, x.index);
  }
  static V Last() { return {~Vector<Word>{}, ~Vector<Word>{}}; }
  static void Exchange(V& a, V& b) {
    const auto ordered =
        (a.key < b.key) | ((a.key == b.key) & (a.index < b.index));
    const V x = a;
    a = {ordered ? x.key : b.key, ordered ? x.index : b.index};
    b = {ordered ? b.key : x.key, ordered ? b.index : x.index};
  }
};

// So many entries are sorted in registers at once.
inline constexpr int64_t kInRegisters = 8;

// The entries for which SortTogether needs room if it sorts n.
inline int64_t RoomTogether(int64_t n) {
  return (n + kInRegisters - 1) / kInRegisters * kInRegisters;
}

// Sorts n entries of each row. Runs of sorted entries are merged in pairs: the
// entries of the first are compared with those of the second from its end, so
// that all of the smaller ones are in the first half, which is in bitonic order
// as the second is; then at distances that are halved. Several of these
// comparators are done at a time, between a load and a store.
template <typename Entries>
class SortTogether {
 public:
  SortTogether(typename Entries::Word* entries, int64_t n)
      : entries_(entries), n_(RoomTogether(n)) {
    for (int64_t v = 0; v < Entries::kVectors; ++v) {
      for (int64_t i = n; i < n_; ++i) Set(i, v, Entries::Last());
      Sort(v);
    }
  }

 private:
  using V = typename Entries::V;

  V At(int64_t i, int64_t v) const {
    return Entries::At(entries_ + i * Entries::kWords, v);
  }
  void Set(int64_t i, int64_t v, const V& x) {
    Entries::Set(entries_ + i * Entries::kWords, v, x);
  }

  void Sort(int64_t v) {
    for (int64_t i = 0; i < n_; i += kInRegisters) {
      InRegisters(i, v, [](V* x) { Network(x); });
    }
    for (int64_t run = kInRegisters; run < n_; run *= 2) {
      for (int64_t i = 0; i + run < n_; i += 2 * run) Merge(i, run, v);
    }
  }

  // Merges the runs that begin at entries i and i + run. The second one may be
  // shorter: what it lacks would be last.
  void Merge(int64_t i, int64_t run, int64_t v) {
    const int64_t end = std::min(i + 2 * run, n_);
    int64_t distance = run / 2;
    if (run == kInRegisters) {
      for (int64_t k = 0; k < end - i - run; ++k) {
        Exchange(i + run - 1 - k, i + run + k, v);
      }
    } else {
      for (int64_t k = 0; k < run / 2; ++k) {
        const int64_t at[] = {i + k, i + run / 2 + k, i + 3 * run / 2 - 1 - k,
                              i + 2 * run - 1 - k};
        Four(at, end, v, [](V* x) {
          Entries::Exchange(x[0], x[3]);
          Entries::Exchange(x[1], x[2]);
          Entries::Exchange(x[0], x[1]);
          Entries::Exchange(x[2], x[3]);
        });
      }
      distance /= 2;
    }
    for (; distance > kInRegisters; distance /= 4) {
      const int64_t half = distance / 2;
      for (int64_t j = i; j < end; j += 2 * distance) {
        for (int64_t k = j; k < j + half; ++k) {
          const int64_t at[] = {k, k + half, k + distance, k + distance + half};
          Four(at, end, v, [](V* x) {
            Entries::Exchange(x[0], x[2]);
            Entries::Exchange(x[1], x[3]);
            Entries::Exchange(x[0], x[1]);
            Entries::Exchange(x[2], x[3]);
          });
        }
      }
    }
    if (distance == kInRegisters) {
      for (int64_t j = i; j + distance < end; j += 2 * distance) {
        for (int64_t k = j; k < j + distance; ++k) Exchange(k, k + distance, v);
      }
    }
    for (int64_t j = i; j < end; j += kInRegisters) {
      InRegisters(j, v, [](V* x) {
        for (int d = kInRegisters / 2; d > 0; d /= 2) {
          for (int k = 0; k < kInRegisters; ++k) {
            if ((k & d) == 0) Entries::Exchange(x[k], x[k + d]);
          }
        }
      });
    }
  }

  // Batcher's network for 8 entries.
  static void Network(V* x) {
    constexpr int kPairs[][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2},
                                 {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                 {0, 4}, {1, 5}, {2, 6}, {3, 7}, {2, 4},
                                 {3, 5}, {1, 2}, {3, 4}, {5, 6}};
#pragma GCC unroll 19
    for (const auto& [a, b] : kPairs) Entries::Exchange(x[a], x[b]);
  }

  template <typename Body>
  [[gnu::always_inline]] void InRegisters(int64_t i, int64_t v,
                                          const Body& body) {
    V x[kInRegisters];
#pragma GCC unroll 8
    for (int k = 0; k < kInRegisters; ++k) x[k] = At(i + k, v);
    body(x);
#pragma GCC unroll 8
    for (int k = 0; k < kInRegisters; ++k) Set(i + k, v, x[k]);
  }

  // The same for four entries, those of which that are not before `end` would
  // be last.
  template <typename Body>
  [[gnu::always_inline]] void Four(const int64_t* at, int64_t end, int64_t v,
                                   const Body& body) {
    V x[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      x[k] = at[k] < end ? At(at[k], v) : Entries::Last();
    }
    body(x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      if (at[k] < end) Set(at[k], v, x[k]);
    }
  }

  void Exchange(int64_t i, int64_t j, int64_t v) {
    V x = At(i, v), y = At(j, v);
    Entries::Exchange(x, y);
    Set(i, v, x);
    Set(j, v, y);
  }

  typename Entries::Word* const entries_;
  const int64_t n_;
};

// Moves the kKeep smallest of n >= kKeep entries of each row to the front, in
// order.
template <typename Entries, int kKeep>
void SelectTogether(typename Entries::Word* entries, int64_t n) {
  for (int64_t v = 0; v < Entries::kVectors; ++v) {
    typename Entries::V best[kKeep];
    std::fill_n(best, kKeep, Entries::Last());
    for (int64_t i = 0; i < n; ++i) {
      auto x = Entries::At(entries + i * Entries::kWords, v);
#pragma GCC unroll 8
      for (int k = 0; k < kKeep; ++k) Entries::Exchange(best[k], x);
    }
    for (int k = 0; k < kKeep; ++k) {
      Entries::Set(entries + k * Entries::kWords, v, best[k]);
    }
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_SORT_TOGETHER_H_
