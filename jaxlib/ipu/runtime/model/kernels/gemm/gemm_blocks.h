// A matrix times a matrix on one thread, in packed blocks; included by
// gemm_*.cc alone.
//
// Loops as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008), with the two operands' parts exchanged: a block of
// the right operand is packed to stay in the second-level cache, and for each
// few rows of the left operand a strip of them is packed into the first.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_tile.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {

namespace gemm {

// Bytes of a packed block of the right operand: half a second-level cache.
inline constexpr int64_t kBlockBytes = 512 << 10;
// Terms per block: a packed strip of rows and a tile's columns of the block
// share the first-level cache.
inline constexpr int64_t kTerms = 256;

// Lays `rows` rows of k elements out so that element (row, k) goes to
// to[k * step + row]; may write a vector more behind the last.
template <typename T>
void Interleave(const char* from, const Matrix& matrix, bool native,
                LoadRun<T> load, int64_t rows, int64_t k, T* to, int64_t step) {
  if (native && matrix.column == 1) {
    return TransposeRun(reinterpret_cast<const T*>(from), matrix.row, rows, k,
                        to, step);
  }
  T* dense = ThreadBuffers().vector.Get<T>(rows * k);
  for (int64_t r = 0; r < rows; ++r) {
    load(from + r * matrix.row * matrix.item_size, matrix.column, k,
         dense + r * k);
  }
  TransposeRun(dense, k, rows, k, to, step);
}

}  // namespace gemm

template <typename T>
void Gemm<T>::SumBlocks(const char* lhs, const char* rhs, int64_t m, int64_t n,
                        int64_t k, T* to, int64_t to_row, bool add) const {
  using gemm::CeilDiv;
  constexpr int64_t kWidth = kTileColumns<T>;
  // Packing pays when what is packed is used often enough.
  const int64_t strips = CeilDiv(m, kTileRows);
  const bool direct_rows = lhs_native_ && n <= 2 * kWidth;
  const bool direct_columns = rhs_native_ && p_.rhs.row == 1 && strips <= 2;
  int64_t terms = CeilDiv(k, CeilDiv(k, gemm::kTerms * 5 / 4));
  if (direct_rows) {
    const int64_t row_bytes = CeilDiv(n, kWidth) * kWidth * sizeof(T);
    terms = std::min(k, std::max(terms, gemm::kBlockBytes / row_bytes));
  }
  const int64_t block =
      direct_columns
          ? n
          : std::min(n, gemm::kBlockBytes /
                            (terms * kWidth * int64_t{sizeof(T)}) * kWidth);
  gemm::Buffers& buffers = gemm::ThreadBuffers();
  T* packed_columns = nullptr;
  T* strip = nullptr;
  // Behind the packed elements whole vectors may be written.
  if (!direct_columns) {
    packed_columns = buffers.columns.Get<T>(
        CeilDiv(block, kWidth) * kWidth * terms + kWidth);
  }
  if (!direct_rows) strip = buffers.rows.Get<T>(kTileRows * terms + kWidth);

  for (int64_t j0 = 0; j0 < n; j0 += block) {
    const int64_t columns = std::min(block, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += terms) {
      TileArgs<T> tile{};
      tile.k = std::min(terms, k - k0);
      tile.c_row = to_row;
      tile.add = add || k0 > 0;
      const char* from =
          rhs + (j0 * p_.rhs.row + k0 * p_.rhs.column) * p_.rhs.item_size;
      const T* b = packed_columns;
      int64_t panel_step = kWidth * tile.k;
      if (direct_columns) {
        b = reinterpret_cast<const T*>(from);
        tile.b_k = p_.rhs.column;
        panel_step = kWidth;
      } else {
        PackColumns(from, columns, tile.k, packed_columns);
        tile.b_k = kWidth;
      }
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t i0 = m * s / strips, rows = m * (s + 1) / strips - i0;
        const char* left =
            lhs + (i0 * p_.lhs.row + k0 * p_.lhs.column) * p_.lhs.item_size;
        bool dense_rows = true;
        if (direct_rows) {
          tile.a = reinterpret_cast<const T*>(left);
          tile.a_row = p_.lhs.row;
          tile.a_k = p_.lhs.column;
          dense_rows = p_.lhs.row == 1;
        } else {
          PackRows(left, rows, tile.k, strip);
          tile.a = strip;
          tile.a_k = rows;
        }
        for (int64_t j = 0; j < columns; j += kWidth) {
          tile.b = b + j / kWidth * panel_step;
          tile.c = to + i0 * to_row + j0 + j;
          tile.columns = std::min(kWidth, columns - j);
          TileFor<T>(rows, tile.columns, dense_rows)(tile);
        }
      }
    }
  }
}

// Packs `rows` <= kTileRows rows: element (row, k) to to[k * rows + row].
template <typename T>
void Gemm<T>::PackRows(const char* lhs, int64_t rows, int64_t k, T* to) const {
  const Matrix& a = p_.lhs;
  if (lhs_native_ && a.row == 1) {
    const T* from = reinterpret_cast<const T*>(lhs);
    const int64_t whole = (rows - 1) / kLanes<T> * kLanes<T>;
    const Mask<T> mask(rows - whole);
    for (int64_t i = 0; i < k; ++i, from += a.column, to += rows) {
      for (int64_t r = 0; r < whole; r += kLanes<T>)
        Store(to + r, Load<Vector<T>>(from + r));
      Store(to + whole, mask.Load(from + whole));
    }
  } else if (a.row == 1) {
    for (int64_t i = 0; i < k; ++i) {
      load_lhs_(lhs + i * a.column * a.item_size, 1, rows, to + i * rows);
    }
  } else {
    gemm::Interleave(lhs, a, lhs_native_, load_lhs_, rows, k, to, rows);
  }
}

// Packs columns in panels of kTileColumns, in each one row per term.
template <typename T>
void Gemm<T>::PackColumns(const char* rhs, int64_t columns, int64_t k,
                          T* to) const {
  constexpr int64_t kWidth = kTileColumns<T>;
  const Matrix& b = p_.rhs;
  if (b.row == 1) {
    // Row by row, as the memory likes it.
    for (int64_t i = 0; i < k; ++i, to += kWidth) {
      const char* row = rhs + i * b.column * b.item_size;
      T* panel = to;
      int64_t j = 0;
      if (rhs_native_) {
        for (; j + kWidth <= columns; j += kWidth, panel += kWidth * k) {
          for (int64_t v = 0; v < kWidth; v += kLanes<T>) {
            Store(panel + v,
                  Load<Vector<T>>(reinterpret_cast<const T*>(row) + j + v));
          }
        }
      }
      for (; j < columns; j += kWidth, panel += kWidth * k) {
        load_rhs_(row + j * b.item_size, 1, std::min(kWidth, columns - j),
                  panel);
      }
    }
    return;
  }
  for (int64_t j = 0; j < columns; j += kWidth, to += kWidth * k) {
    const int64_t width = std::min(kWidth, columns - j);
    gemm::Interleave(rhs + j * b.row * b.item_size, b, rhs_native_, load_rhs_,
                     width, k, to, kWidth);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BLOCKS_H_
