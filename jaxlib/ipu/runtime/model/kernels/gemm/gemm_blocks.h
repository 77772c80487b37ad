// A matrix-matrix product on one thread, in packed blocks; included only by
// gemm_*.cc.
//
// The loop order is that of Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication" (2008), with the roles of the operands swapped: a
// block of the right operand is packed to stay in the second-level cache, and
// for every few rows of the left operand, a strip of them is packed into the
// first-level cache. If there are few rows, as in the step of a recurrent
// network, packing the right operand would take a good part of the time:
// instead, a panel of its columns is read where it is, for all strips. Rows are
// read where they are, too, if there are few columns, or if they are windows of
// a convolution: those overlap, so that a strip of them has fewer bytes than
// its packed copy.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pack.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_tile.h"

namespace ipu::model::IPU_SIMD_NS {

namespace gemm {

// Bytes of a packed block of the right operand: half of a second-level cache.
inline constexpr int64_t kBlockBytes = 512 << 10;
// Terms per block: a packed strip of rows and one tile's columns of the block
// fit into the first-level cache together.
inline constexpr int64_t kTerms = 256;
// Up to this many bytes of the right operand, and this many strips of rows,
// panels of columns are read where they are. Measured with 1 MB of second-level
// cache: 32 rows took 0.65 to 0.9 of the time of packed panels for 32 KB to 4
// MB, and 1.25 at 16 MB; 22 strips took 0.95 at 256 KB and 1.1 at 4 MB.
inline constexpr int64_t kMostInPlace = 4 << 20;
inline constexpr int64_t kMostStrips = 16;
// Up to this many bytes, all packed strips of some terms are kept for the next
// block of columns; a guess: a part of a third-level cache. Measured, with 1024
// and 2048 rows: 0.99 and 0.97 of the time.
inline constexpr int64_t kMostKept = 4 << 20;
// Windows of a convolution are read where they are if strips of evenly spaced
// ones have at least so many rows on average: with two vectors each, their sums
// just hide the latency of multiply-adds. Measured, of 3x3 windows of 64
// channels: lines of 3 took 1.19 of the time of packed ones with AVX-512
// and 1.17 with AVX2, of 4 0.97 and 0.98, of 28 0.82 and 0.92. Of 7 and 256
// channels: 1.11 with AVX2, where strips have 3 and 4 rows, and 0.87 with
// AVX-512.
inline constexpr int64_t kWorthWindows = 4;
// Up to this many columns, rows are read where they are. Two panels are a
// guess.
template <typename T>
inline constexpr int64_t kFewColumns = 2 * kTileColumns<T>;
// The same where the terms of a row are contiguous; others touch a cache line
// for each term. Measured with AVX2: 64, 96, 128 and 256 columns of as many
// terms took 0.91, 0.87, 0.96 and 0.99 of the time of packed rows, 1024 rows
// and terms by 64 and 128 columns 0.86 and 0.87, 512 rows and terms by 512
// columns 0.98.
template <typename T>
inline constexpr int64_t kDirectColumns =
    IPU_AVX512 ? kFewColumns<T> : 16 * kTileColumns<T>;
// A limit of the runs of a block's terms: they have two terms or more, but for
// the first and the last.
inline constexpr int64_t kMostRuns = kTerms * 5 / 4 / 2 + 2;
// Multiply-adds that justify a second thread, a guess: a few microseconds.
inline constexpr double kWorthThread = 1 << 17;

}  // namespace gemm

// Where rows of sums are stored: with stride `row`, or along an axis of the
// result.
template <typename T>
struct Gemm<T>::ResultRows {
  T* to;
  int64_t row;
  const Axis* axis = nullptr;

  // Calls body(first, rows, to, stride) for strips of at most kTileRows evenly
  // spaced rows: `rows` of them starting at m.begin + first. If `windows` is
  // given, each is within one of its runs.
  template <typename Body>
  void ForStrips(Range m, const Body& body,
                 const Axis* windows = nullptr) const {
    for (int64_t i = m.begin; i < m.end;) {
      Range run = {i, m.end};
      if (axis != nullptr) run = axis->RunOf(run);
      if (windows != nullptr) run = windows->RunOf(run);
      const int64_t step = axis != nullptr ? axis->stride() : row;
      T* const c = to + (axis != nullptr ? axis->At(i) : (i - m.begin) * step);
      const int64_t count = gemm::CeilDiv(run.size(), kTileRows);
      for (int64_t s = 0; s < count; ++s) {
        const int64_t first = run.size() * s / count;
        body(i - m.begin + first, run.size() * (s + 1) / count - first,
             c + first * step, step);
      }
      i = run.end;
    }
  }
};

template <typename T>
void Gemm<T>::SumBlocks(const char* lhs, const char* rhs, Range m, Range n,
                        Range k, const ResultRows& to, bool add) const {
  using gemm::CeilDiv;
  constexpr int64_t kWidth = kTileColumns<T>;
  const Matrix& a = p_.lhs;
  const Matrix& b = p_.rhs;
  // Packing pays off if packed elements are used often enough.
  const int64_t strips = CeilDiv(m.size(), kTileRows);
  const bool even_rows = a.row.even() && a.column.even();
  const bool dense_terms = even_rows && a.column.stride() == 1;
  const int64_t most_columns =
      dense_terms ? gemm::kDirectColumns<T> : gemm::kFewColumns<T>;
  const bool direct_rows =
      lhs_native_ && (even_rows ? n.size() <= most_columns : IsDirect(a));
  const bool dense_columns =
      rhs_native_ && b.row.even() && b.column.even() && b.row.stride() == 1;
  const int64_t rhs_bytes = k.size() * b.column.stride() * int64_t{sizeof(T)};
  // The number of strips that are multiplied by a panel before the next panel.
  const int64_t together = dense_columns && !InPairs() &&
                                   strips <= gemm::kMostStrips &&
                                   rhs_bytes <= gemm::kMostInPlace
                               ? gemm::kMostStrips
                               : 1;
  const bool direct_columns = dense_columns && (together > 1 || strips <= 2);
  int64_t terms = CeilDiv(k.size(), CeilDiv(k.size(), gemm::kTerms * 5 / 4));
  if (direct_rows && dense_terms) {
    const int64_t row_bytes = CeilDiv(n.size(), kWidth) * kWidth * sizeof(T);
    terms = std::min(k.size(), std::max(terms, gemm::kBlockBytes / row_bytes));
  }
  const int64_t block =
      direct_columns
          ? n.size()
          : std::min(n.size(), gemm::kBlockBytes /
                                   (terms * kWidth * int64_t{sizeof(T)}) *
                                   kWidth);
  const bool keeps_rows =
      !direct_rows && together == 1 && block < n.size() &&
      m.size() * terms * int64_t{sizeof(T)} <= gemm::kMostKept;
  gemm::Buffers& buffers = gemm::ThreadBuffers();
  T* packed_columns = nullptr;
  T* packed_rows = nullptr;
  // Packing may write a whole vector beyond the packed elements.
  if (!direct_columns) {
    packed_columns = buffers.columns.Get<T>(
        CeilDiv(block, kWidth) * kWidth * terms + kWidth);
  }
  if (!direct_rows) {
    const int64_t rows =
        keeps_rows ? m.size() : std::min(m.size(), together * kTileRows);
    packed_rows = buffers.rows.Get<T>(rows * terms + kWidth);
  }
  const TileKind kind = InPairs() ? KindOfPairs()
                        : direct_rows && a.row.stride() != 1
                            ? TileKind::kRows
                            : TileKind::kDenseRows;
  struct Strip {
    TileArgs<T> tile;
    int64_t rows;
    T* c;
  };

  const auto multiply = [&](int64_t j0, int64_t k0) {
    const Range columns = {j0, std::min(j0 + block, n.end)};
    const Range part = {k0, std::min(k0 + terms, k.end)};
    const int64_t packed_terms =
        InPairs() ? CeilDiv(part.size(), 2) : part.size();
    TermRun runs[gemm::kMostRuns];
    runs[0] = {0, packed_terms};
    TileArgs<T> tile{};
    tile.runs = runs;
    tile.num_runs = 1;
    int64_t first_term = 0;
    if (direct_rows && a.row.stride() == 1) {
      first_term = k0 * a.column.stride();
    } else if (direct_rows) {
      tile.num_runs = 0;
      a.column.ForRuns(part, [&](int64_t at, int64_t, int64_t count) {
        runs[tile.num_runs++] = {at, count};
      });
    }
    tile.add = add || k0 > k.begin;
    const T* panels = packed_columns;
    int64_t panel_step = kWidth * packed_terms;
    if (direct_columns) {
      panels = reinterpret_cast<const T*>(rhs) + j0 + k0 * b.column.stride();
      tile.b_k = b.column.stride();
      panel_step = kWidth;
    } else {
      PackColumns(rhs, columns, part, packed_columns);
      tile.b_k = kWidth;
    }
    Strip waiting[gemm::kMostStrips];
    int64_t num_waiting = 0;
    T* packed = packed_rows;
    const auto multiply_waiting = [&] {
      for (int64_t j = 0; j < columns.size(); j += kWidth) {
        for (int64_t i = 0; i < num_waiting; ++i) {
          TileArgs<T>& strip = waiting[i].tile;
          strip.b = panels + j / kWidth * panel_step;
          strip.c = waiting[i].c + (j0 - n.begin) + j;
          strip.columns = std::min(kWidth, columns.size() - j);
          // The last strip fetches the next panel: no processor foresees where
          // it is, rows being pages apart. Measured (AVX-512, one core): steps
          // of an MLP of 784, 1024, 1024 and 10 with momentum, batch 32 and
          // 128, took 2.4 and 6.2 ms instead of 3.4 and 7.9.
          const bool fetches = direct_columns && i + 1 == num_waiting &&
                               j + kWidth < columns.size();
          strip.ahead = fetches ? panel_step : 0;
          TileFor<T>(waiting[i].rows, strip.columns, kind)(strip);
        }
      }
      num_waiting = 0;
      packed = packed_rows;
    };
    const auto add_strip = [&](int64_t first, int64_t rows, T* c,
                               int64_t c_row) {
      const Range strip_rows = {m.begin + first, m.begin + first + rows};
      Strip strip{tile, rows, c};
      strip.tile.c_row = c_row;
      if (direct_rows) {
        strip.tile.a = reinterpret_cast<const T*>(lhs) +
                       a.row.At(strip_rows.begin) + first_term;
        strip.tile.a_row = a.row.stride();
        strip.tile.a_k = a.column.stride();
      } else {
        if (keeps_rows) packed = packed_rows + first * part.size();
        if (!keeps_rows || j0 == n.begin) {
          PackRows(lhs, strip_rows, part, packed);
        }
        strip.tile.a = packed;
        strip.tile.a_k = rows;
        packed += rows * part.size();
      }
      waiting[num_waiting++] = strip;
      if (num_waiting == together) multiply_waiting();
    };
    to.ForStrips(m, add_strip, direct_rows ? &a.row : nullptr);
    multiply_waiting();
  };
  if (keeps_rows) {
    for (int64_t k0 = k.begin; k0 < k.end; k0 += terms) {
      for (int64_t j0 = n.begin; j0 < n.end; j0 += block) multiply(j0, k0);
    }
    return;
  }
  for (int64_t j0 = n.begin; j0 < n.end; j0 += block) {
    for (int64_t k0 = k.begin; k0 < k.end; k0 += terms) multiply(j0, k0);
  }
}

template <typename T>
bool Gemm<T>::IsDirect(const Matrix& windows) {
  const Axis& row = windows.row;
  const int64_t strips = gemm::CeilDiv(row.run(), kTileRows);
  return row.stride() != 1 && row.run() >= strips * gemm::kWorthWindows &&
         windows.column.stride() == 1;
}

template <typename T>
void Gemm<T>::PackRows(const char* lhs, Range rows, Range k, T* to) const {
  const gemm::Packer<T> packer{p_.lhs, lhs_native_, load_lhs_, InPairs()};
  packer.Pack(lhs, rows, k, to, rows.size());
}

template <typename T>
void Gemm<T>::PackColumns(const char* rhs, Range columns, Range k,
                          T* to) const {
  constexpr int64_t kWidth = kTileColumns<T>;
  const gemm::Packer<T> packer{p_.rhs, rhs_native_, load_rhs_, InPairs()};
  if (!InPairs() && p_.rhs.row.stride() == 1 && p_.rhs.row.InOneRun(columns)) {
    return packer.PackPanels(rhs, columns, k, to);
  }
  const int64_t terms = InPairs() ? gemm::CeilDiv(k.size(), 2) : k.size();
  for (int64_t j = columns.begin; j < columns.end; j += kWidth) {
    packer.Pack(rhs, {j, std::min(j + kWidth, columns.end)}, k, to, kWidth);
    to += kWidth * terms;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_
