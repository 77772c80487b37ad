#include "jaxlib/ipu/runtime/model/kernels/copy/transpose.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

// Larger transposes use non-temporal stores: the first lines would be evicted
// before the last are written. Measured: crosses at 330 KB, where the result is
// not read again soon (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kStreamBytes, 4 << 20);

// The widest vectors that one instruction can interleave, with at most 16
// items, so that a tile fits into the registers.
#ifdef __AVX512F__
constexpr int kWidest = 64;
#elif defined(__AVX__)
constexpr int kWidest = 32;
#else
constexpr int kWidest = 16;
#endif

template <typename Item>
constexpr int kTile =
    sizeof(Item) < 4 ? 16 / sizeof(Item) : kWidest / sizeof(Item);

template <typename Item, int kN>
struct Vector {
  typedef Item Type __attribute__((vector_size(kN * sizeof(Item))));

  // Interleaves the lower or the upper halves of a and b.
  template <size_t... kI>
  static Type Low(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (kI / 2 + kI % 2 * kN)...);
  }
  template <size_t... kI>
  static Type High(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (kN / 2 + kI / 2 + kI % 2 * kN)...);
  }
  // The items at even or at odd places of a, then of b.
  template <size_t... kI>
  static Type Even(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (2 * kI)...);
  }
  template <size_t... kI>
  static Type Odd(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (2 * kI + 1)...);
  }
};

// Pairs are moved as two items.
template <int kN>
struct Vector<Pair, kN> {
  typedef uint64_t Type __attribute__((vector_size(kN * sizeof(Pair))));

  template <size_t... kI>
  static Type Low(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, Place(kI)..., Place(kN + kI)...);
  }
  template <size_t... kI>
  static Type High(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (kN + Place(kI))...,
                                   (kN + Place(kN + kI))...);
  }

 private:
  // Of half k of an interleaved vector, in a and b one after the other.
  static constexpr size_t Place(size_t k) {
    return k / 4 * 2 + k / 2 % 2 * 2 * kN + k % 2;
  }
};

// Transposes one square tile of N x N items; from(i) and to(i) are its rows.
// Interleaving row i with row i + N/2, for all i, rotates the bits of each
// item's address (row, column) by one; after log2(N) rounds row and column are
// swapped.
template <typename Item, int kN, typename From, typename To>
[[gnu::always_inline]] inline void TransposeRows(const From& from,
                                                 const To& to) {
  using Vec = Vector<Item, kN>;
  using Type = typename Vec::Type;
  constexpr auto kAll = std::make_index_sequence<kN>();
  Type rows[kN];
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) {
    std::memcpy(&rows[i], from(i), sizeof rows[i]);
  }
#pragma GCC unroll 4
  for (int round = 1; round < kN; round *= 2) {
    Type next[kN];
#pragma GCC unroll 8
    for (int i = 0; i < kN / 2; ++i) {
      next[2 * i] = Vec::Low(rows[i], rows[i + kN / 2], kAll);
      next[2 * i + 1] = Vec::High(rows[i], rows[i + kN / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) {
    std::memcpy(to(i), &rows[i], sizeof rows[i]);
  }
}

// The same where rows are evenly spaced.
template <typename Item>
void TransposeTile(const char* source, int64_t source_step, char* destination,
                   int64_t destination_step) {
  TransposeRows<Item, kTile<Item>>(
      [=](int i) { return source + i * source_step; },
      [=](int i) { return destination + i * destination_step; });
}

// Writes one cache line from an aligned buffer, bypassing the caches.
void StreamLine(char* to, const char* from) {
#if defined(__AVX512F__)
  using Part = __m512i;
  const auto stream = [](Part* p, Part v) { _mm512_stream_si512(p, v); };
#elif defined(__AVX__)
  using Part = __m256i;
  const auto stream = [](Part* p, Part v) { _mm256_stream_si256(p, v); };
#else
  using Part = __m128i;
  const auto stream = [](Part* p, Part v) { _mm_stream_si128(p, v); };
#endif
  for (size_t i = 0; i < kLine / sizeof(Part); ++i) {
    stream(reinterpret_cast<Part*>(to) + i,
           reinterpret_cast<const Part*>(from)[i]);
  }
}

// A square with sides of one cache line, each line of which is touched once.
template <typename Item, bool kStream>
void TransposeLines(const char* source, int64_t source_step, char* destination,
                    int64_t destination_step) {
  constexpr int64_t kItem = sizeof(Item);
  constexpr int64_t kN = kTile<Item>;
  constexpr int64_t kSide = kLine / kItem;
  if constexpr (kN == kSide && !kStream) {
    return TransposeTile<Item>(source, source_step, destination,
                               destination_step);
  }
  alignas(kLine) char out[kSide * kLine];
  if constexpr (kN == kSide) {
    TransposeTile<Item>(source, source_step, out, kLine);
  } else {
    alignas(kLine) char in[kSide * kLine];
    for (int64_t j = 0; j < kSide; ++j) {
      std::memcpy(in + j * kLine, source + j * source_step, kLine);
    }
    for (int64_t i = 0; i < kSide; i += kN) {
      for (int64_t j = 0; j < kSide; j += kN) {
        TransposeTile<Item>(in + j * kLine + i * kItem, kLine,
                            out + i * kLine + j * kItem, kLine);
      }
    }
  }
  for (int64_t i = 0; i < kSide; ++i) {
    char* const to = destination + i * destination_step;
    if constexpr (kStream) {
      StreamLine(to, out + i * kLine);
    } else {
      std::memcpy(to, out + i * kLine, kLine);
    }
  }
}

// A transpose in parts: destination rows [i0, i1), columns [j0, j1).
template <typename Item>
class Parts {
 public:
  Parts(const char* source, int64_t source_step, char* destination,
        int64_t destination_step)
      : source_(source),
        source_step_(source_step),
        destination_(destination),
        destination_step_(destination_step) {}

  void Run(int64_t rows, int64_t columns) const {
    if constexpr (std::is_same_v<Item, Pair>) {
      constexpr int64_t kSquare = 32;
      for (int64_t i = 0; i < rows; i += kSquare) {
        for (int64_t j = 0; j < columns; j += kSquare) {
          Tiles(i, std::min(i + kSquare, rows), j,
                std::min(j + kSquare, columns));
        }
      }
    } else {
      if (columns == 2 && destination_step_ == 2 * kItem) return Join(rows);
      if (rows == 2 && source_step_ == 2 * kItem) return Separate(columns);
      const int64_t it = rows / kSide * kSide;
      const int64_t jt = columns / kSide * kSide;
      const bool aligned =
          reinterpret_cast<uintptr_t>(destination_) % kLine == 0 &&
          destination_step_ % kLine == 0;
      // Rows whose distance is a multiple of a large power of two map to few
      // cache sets and evict each other; then every line must be finished when
      // it is touched. Otherwise tiles may revisit a line.
      const bool crowded =
          source_step_ % kCrowded == 0 || destination_step_ % kCrowded == 0;
      if (kTile<Item> < kSide && !crowded) return Tiles(0, rows, 0, columns);
      if (aligned && rows * columns * kItem >= kStreamBytes) {
        Squares<true>(it, jt);
        _mm_sfence();
      } else {
        Squares<false>(it, jt);
      }
      Tiles(it, rows, 0, jt);
      Tiles(0, rows, jt, columns);
    }
  }

 private:
  static constexpr int64_t kItem = sizeof(Item);
  static constexpr int64_t kSide = kLine / kItem;
  static constexpr int64_t kSquare = 256;
  static constexpr int64_t kCrowded = 2048;  // bytes

  // Joins two rows of `count` items to one of pairs.
  void Join(int64_t count) const {
    constexpr int kN = kWidest / kItem;
    using Vec = Vector<Item, kN>;
    constexpr auto kAll = std::make_index_sequence<kN>();
    int64_t i = 0;
    for (; i + kN <= count; i += kN) {
      typename Vec::Type a, b;
      std::memcpy(&a, From(i, 0), kWidest);
      std::memcpy(&b, From(i, 1), kWidest);
      const auto low = Vec::Low(a, b, kAll), high = Vec::High(a, b, kAll);
      std::memcpy(To(i, 0), &low, kWidest);
      std::memcpy(To(i, 0) + kWidest, &high, kWidest);
    }
    Items(i, count, 0, 2);
  }

  // Separates a row of `count` pairs into two rows.
  void Separate(int64_t count) const {
    constexpr int kN = kWidest / kItem;
    using Vec = Vector<Item, kN>;
    constexpr auto kAll = std::make_index_sequence<kN>();
    int64_t j = 0;
    for (; j + kN <= count; j += kN) {
      typename Vec::Type a, b;
      std::memcpy(&a, From(0, j), kWidest);
      std::memcpy(&b, From(0, j) + kWidest, kWidest);
      const auto even = Vec::Even(a, b, kAll), odd = Vec::Odd(a, b, kAll);
      std::memcpy(To(0, j), &even, kWidest);
      std::memcpy(To(1, j), &odd, kWidest);
    }
    Items(0, 2, j, count);
  }

  // Processes whole cache lines, in squares small enough for the pages of both
  // sides to stay in the TLB.
  template <bool kStream>
  void Squares(int64_t rows, int64_t columns) const {
    for (int64_t i0 = 0; i0 < rows; i0 += kSquare) {
      const int64_t i1 = std::min(i0 + kSquare, rows);
      for (int64_t j0 = 0; j0 < columns; j0 += kSquare) {
        const int64_t j1 = std::min(j0 + kSquare, columns);
        for (int64_t i = i0; i < i1; i += kSide) {
          for (int64_t j = j0; j < j1; j += kSide) {
            TransposeLines<Item, kStream>(From(i, j), source_step_, To(i, j),
                                          destination_step_);
          }
        }
      }
    }
  }

  void Tiles(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
    constexpr int64_t kN = kTile<Item>;
    const int64_t it = i0 + (i1 - i0) / kN * kN;
    const int64_t jt = j0 + (j1 - j0) / kN * kN;
    for (int64_t j = j0; j < jt; j += kSquare) {
      for (int64_t i = i0; i < it; i += kN) {
        for (int64_t jj = j; jj < std::min(j + kSquare, jt); jj += kN) {
          TransposeTile<Item>(From(i, jj), source_step_, To(i, jj),
                              destination_step_);
        }
      }
    }
    Items(it, i1, j0, jt);
    Items(i0, i1, jt, j1);
  }

  // Copies item by item, along the longer side.
  void Items(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
    if (i1 - i0 < j1 - j0) {
      for (int64_t i = i0; i < i1; ++i) {
        const char* from = From(i, j0);
        char* to = To(i, j0);
        for (int64_t j = j0; j < j1; ++j, from += source_step_, to += kItem) {
          std::memcpy(to, from, kItem);
        }
      }
    } else {
      for (int64_t j = j0; j < j1; ++j) {
        const char* from = From(i0, j);
        char* to = To(i0, j);
        for (int64_t i = i0; i < i1;
             ++i, from += kItem, to += destination_step_) {
          std::memcpy(to, from, kItem);
        }
      }
    }
  }

  const char* From(int64_t i, int64_t j) const {
    return source_ + i * kItem + j * source_step_;
  }
  char* To(int64_t i, int64_t j) const {
    return destination_ + i * destination_step_ + j * kItem;
  }

  const char* const source_;
  const int64_t source_step_;
  char* const destination_;
  const int64_t destination_step_;
};

// A transpose whose rows, or columns, consist of short groups.
template <typename Item>
class GroupParts {
 public:
  GroupParts(const Groups& rows, const Groups& columns, const char* source,
             char* destination)
      : rows_(rows),
        columns_(columns),
        source_(source),
        destination_(destination) {}

  // Destination rows [i0, i1), columns [j0, j1), in tiles of kN x kN items and,
  // where these do not fit, smaller ones.
  template <int kN = kTile<Item>>
  void Run(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
    if constexpr (kN < 4) {
      return Items(i0, i1, j0, j1);
    } else {
      const int64_t it = i0 + (i1 - i0) / kN * kN;
      const int64_t jt = j0 + (j1 - j0) / kN * kN;
      for (int64_t i = i0; i < it; i += kSquare) {
        Tiles<kN>(i, std::min(i + kSquare, it), j0, jt);
      }
      if (it < i1) Run<kN / 2>(it, i1, j0, jt);
      if (jt < j1) Run<kN / 2>(i0, i1, jt, j1);
    }
  }

 private:
  static constexpr int64_t kItem = sizeof(Item);
  // Rows whose pages are in the TLB at the same time; a guess.
  static constexpr int64_t kSquare = 256;

  template <int kN>
  void Tiles(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
    for (int64_t j = j0; j < j1; j += kN) {
      int64_t from[kN];
      for (int k = 0; k < kN; ++k) from[k] = columns_.At(j + k);
      for (int64_t i = i0; i < i1; i += kN) {
        int64_t to[kN];
        for (int k = 0; k < kN; ++k) to[k] = rows_.At(i + k);
        TransposeRows<Item, kN>(
            [&](int k) { return source_ + from[k] + i * kItem; },
            [&](int k) { return destination_ + to[k] + j * kItem; });
      }
    }
  }

  void Items(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
    for (int64_t i = i0; i < i1; ++i) {
      char* const to = destination_ + rows_.At(i);
      for (int64_t j = j0; j < j1; ++j) {
        std::memcpy(to + j * kItem, source_ + columns_.At(j) + i * kItem,
                    kItem);
      }
    }
  }

  const Groups& rows_;
  const Groups& columns_;
  const char* const source_;
  char* const destination_;
};

}  // namespace

void TransposeGroups(int64_t item_size, const Groups& rows,
                     const Groups& columns, const char* source,
                     char* destination) {
  WithItem(item_size, [&]<typename Item>(Item) {
    GroupParts<Item>(rows, columns, source, destination)
        .Run(0, rows.count(), 0, columns.count());
  });
}

void Transpose(int64_t item_size, int64_t rows, int64_t columns,
               const char* source, int64_t source_step, char* destination,
               int64_t destination_step) {
  WithItemOrPair(item_size, [&]<typename Item>(Item) {
    Parts<Item>(source, source_step, destination, destination_step)
        .Run(rows, columns);
  });
}

}  // namespace ipu::model::IPU_SIMD_NS
