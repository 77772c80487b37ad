#include "jaxlib/ipu/runtime/model/kernels/transpose.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The widest vectors whose interleaving is one instruction, of at most 16
// items, so that a tile fits the registers.
#ifdef __AVX512F__
constexpr int kWidest = 64;
#else
constexpr int kWidest = 32;
#endif

template <typename Item>
constexpr int kTile =
    sizeof(Item) < 4 ? 16 / sizeof(Item) : kWidest / sizeof(Item);

template <typename Item, int kN>
struct Vector {
  typedef Item Type __attribute__((vector_size(kN * sizeof(Item))));

  // The items of a and b in turn, from the first on or from the middle on.
  template <size_t... kI>
  static Type Low(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (kI / 2 + kI % 2 * kN)...);
  }
  template <size_t... kI>
  static Type High(Type a, Type b, std::index_sequence<kI...>) {
    return __builtin_shufflevector(a, b, (kN / 2 + kI / 2 + kI % 2 * kN)...);
  }
};

// One square tile. Interleaving row i with row i + N/2 rotates the bits of all
// items' addresses by one; log2 N times is half a turn, which swaps row and
// column.
template <typename Item>
void TransposeTile(const char* source, int64_t source_step, char* destination,
                   int64_t destination_step) {
  constexpr int kN = kTile<Item>;
  using Vec = Vector<Item, kN>;
  using Type = typename Vec::Type;
  constexpr auto kAll = std::make_index_sequence<kN>();
  Type rows[kN];
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) {
    std::memcpy(&rows[i], source + i * source_step, sizeof rows[i]);
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
    std::memcpy(destination + i * destination_step, &rows[i], sizeof rows[i]);
  }
}

struct Pair {
  uint64_t words[2];
};

template <typename Item>
void TransposeItems(int64_t rows, int64_t columns, const char* source,
                    int64_t source_step, char* destination,
                    int64_t destination_step) {
  constexpr int64_t kItem = sizeof(Item);
  const auto row_by_row = [&](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    for (int64_t i = i0; i < i1; ++i) {
      const char* from = source + i * kItem + j0 * source_step;
      char* to = destination + i * destination_step + j0 * kItem;
      for (int64_t j = j0; j < j1; ++j, from += source_step, to += kItem) {
        std::memcpy(to, from, kItem);
      }
    }
  };
  const auto column_by_column = [&](int64_t i0, int64_t i1, int64_t j0,
                                    int64_t j1) {
    for (int64_t j = j0; j < j1; ++j) {
      const char* from = source + i0 * kItem + j * source_step;
      char* to = destination + i0 * destination_step + j * kItem;
      for (int64_t i = i0; i < i1; ++i, from += kItem, to += destination_step) {
        std::memcpy(to, from, kItem);
      }
    }
  };
  // What tiles do not cover, along its longer side.
  const auto rest = [&](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    if (i1 - i0 < j1 - j0) {
      row_by_row(i0, i1, j0, j1);
    } else {
      column_by_column(i0, i1, j0, j1);
    }
  };

  // Squares small enough for both sides' pages and lines to stay at hand.
  constexpr int64_t kSquare = 128;
  for (int64_t i0 = 0; i0 < rows; i0 += kSquare) {
    const int64_t i1 = std::min(i0 + kSquare, rows);
    for (int64_t j0 = 0; j0 < columns; j0 += kSquare) {
      const int64_t j1 = std::min(j0 + kSquare, columns);
      if constexpr (std::is_same_v<Item, Pair>) {
        rest(i0, i1, j0, j1);
      } else {
        constexpr int64_t kN = kTile<Item>;
        const int64_t it = i0 + (i1 - i0) / kN * kN;
        const int64_t jt = j0 + (j1 - j0) / kN * kN;
        for (int64_t i = i0; i < it; i += kN) {
          for (int64_t j = j0; j < jt; j += kN) {
            TransposeTile<Item>(source + i * kItem + j * source_step,
                                source_step,
                                destination + i * destination_step + j * kItem,
                                destination_step);
          }
        }
        if (it < i1) rest(it, i1, j0, jt);
        if (jt < j1) rest(i0, i1, jt, j1);
      }
    }
  }
}

}  // namespace

void Transpose(int64_t item_size, int64_t rows, int64_t columns,
               const char* source, int64_t source_step, char* destination,
               int64_t destination_step) {
  const auto run = [&]<typename Item>(Item) {
    TransposeItems<Item>(rows, columns, source, source_step, destination,
                         destination_step);
  };
  switch (item_size) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    case 8:
      return run(uint64_t{});
    case 16:
      return run(Pair{});
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
