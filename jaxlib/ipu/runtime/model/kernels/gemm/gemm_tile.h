// The micro-kernel of matrix products: a tile of sums kept in registers.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TILE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TILE_H_

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pairs.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// A tile has at most kTileRows rows of two vectors. Together with two vectors
// of the right operand and one more, its sums just fill the 32 or 16 registers.
#if IPU_AVX512
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileVectors = 2;
template <typename T>
inline constexpr int kTileColumns = kTileVectors * kLanes<T>;

// Terms that are evenly spaced in the left operand.
struct TermRun {
  int64_t at;  // of the first, in elements
  int64_t count;
};

// The operands of a tile; strides are in elements.
template <typename T>
struct TileArgs {
  const TermRun* runs;  // all kinds but kRows have one, at 0
  int64_t num_runs;
  const T* a;  // term k of a run is at a + row * a_row + run.at + k * a_k
  int64_t a_row;
  int64_t a_k;
  const T* b;  // columns are contiguous
  int64_t b_k;
  int64_t ahead;  // where the columns are that are fetched, relative to b
  T* c;           // columns are contiguous
  int64_t c_row;
  int64_t columns;  // 1 to kTileColumns
  bool add;         // add to c instead of overwriting it
};

// The layout and the meaning of a tile's elements.
enum class TileKind {
  kRows,       // any a_row, several runs
  kDenseRows,  // a_row is 1, so rows are at constant offsets
  kPairs,      // as kDenseRows; each element holds two terms, see gemm_pairs.h
  kDotPairs    // the same in one instruction (AVX-512)
};

// That of pairs on this processor.
inline TileKind KindOfPairs() {
  return gemm::HasDotProducts() ? TileKind::kDotPairs : TileKind::kPairs;
}

template <typename T, int kRows, int kVectors, TileKind kKind, bool kWhole>
void Tile(const TileArgs<T>& args) {
  [[maybe_unused]] const int64_t a_row =
      kKind == TileKind::kRows ? args.a_row : 1;
  constexpr int kLast = kVectors - 1;
  const std::conditional_t<kWhole, AllLanes<T>, Mask<T>> mask(
      args.columns - kLast * kLanes<T>);
  const T* b = args.b;
  T* const c = args.c;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(c + r * args.c_row + v * kLanes<T>, 1);
    }
  }

  Vector<T> sums[kRows][kVectors] = {};
  const int64_t num_runs = kKind == TileKind::kRows ? args.num_runs : 1;
  for (int64_t i = 0; i < num_runs; ++i) {
    const T* a = args.a + (kKind == TileKind::kRows ? args.runs[i].at : 0);
    for (int64_t k = args.runs[i].count; k > 0; --k) {
      Vector<T> row[kVectors];
      for (int v = 0; v < kLast; ++v)
        row[v] = Load<Vector<T>>(b + v * kLanes<T>);
      row[kLast] = mask.Load(b + kLast * kLanes<T>);
      for (int at = 0; at < kVectors * kVectorBytes; at += 64) {
        __builtin_prefetch(b + args.ahead + at / sizeof(T), 0, 2);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vector<T> factor = Broadcast(a[r * a_row]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          if constexpr (kKind == TileKind::kPairs) {
            sums[r][v] = gemm::MultiplyAddPairs(factor, row[v], sums[r][v]);
#if IPU_AVX512
          } else if constexpr (kKind == TileKind::kDotPairs) {
            sums[r][v] = gemm::AddDotProducts(factor, row[v], sums[r][v]);
#endif
          } else {
            sums[r][v] = MultiplyAdd<T>(factor, row[v], sums[r][v]);
          }
        }
      }
      a += args.a_k;
      b += args.b_k;
    }
  }

#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    T* to = c + r * args.c_row;
    if (args.add) {
      for (int v = 0; v < kLast; ++v)
        sums[r][v] += Load<Vector<T>>(to + v * kLanes<T>);
      sums[r][kLast] += mask.Load(to + kLast * kLanes<T>);
    }
    for (int v = 0; v < kLast; ++v) Store(to + v * kLanes<T>, sums[r][v]);
    mask.Store(to + kLast * kLanes<T>, sums[r][kLast]);
  }
}

template <typename T>
using TileFunction = void (*)(const TileArgs<T>&);

template <typename T, int kVectors, TileKind kKind, bool kWhole>
inline constexpr auto kTileTable =
    []<int... rows>(std::integer_sequence<int, rows...>) {
      return std::array<TileFunction<T>, sizeof...(rows)>{
          Tile<T, rows + 1, kVectors, kKind, kWhole>...};
    }(std::make_integer_sequence<int, kTileRows>());

// The micro-kernel for `rows` (1 to kTileRows) rows and `columns` columns.
template <typename T>
TileFunction<T> TileFor(int64_t rows, int64_t columns, TileKind kind) {
  // With AVX-512, masks cost nothing.
  const bool whole = !IPU_AVX512 && columns % kLanes<T> == 0;
  const auto of = [&]<TileKind kKind>() {
    if constexpr (!IPU_AVX512) {
      if (whole) {
        return columns > kLanes<T> ? kTileTable<T, 2, kKind, true>[rows - 1]
                                   : kTileTable<T, 1, kKind, true>[rows - 1];
      }
    }
    return columns > kLanes<T> ? kTileTable<T, 2, kKind, false>[rows - 1]
                               : kTileTable<T, 1, kKind, false>[rows - 1];
  };
  if (kind == TileKind::kRows) return of.template operator()<TileKind::kRows>();
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (kind == TileKind::kPairs) {
      return of.template operator()<TileKind::kPairs>();
    }
#if IPU_AVX512
    if (kind == TileKind::kDotPairs) {
      return of.template operator()<TileKind::kDotPairs>();
    }
#endif
  }
  return of.template operator()<TileKind::kDenseRows>();
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TILE_H_
