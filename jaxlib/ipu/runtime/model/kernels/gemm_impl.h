// The matrix product's driver; see gemm.h. Included by gemm_*.cc alone.
//
// Loops as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008), with the two operands' parts exchanged: a block of
// the right operand is packed to stay in the second-level cache, and for each
// few rows of the left operand a strip of them is packed into the first.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_IMPL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_IMPL_H_

#include <algorithm>
#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm_tile.h"
#include "jaxlib/ipu/runtime/model/kernels/gemv.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/model/kernels/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// Bytes of a packed block of the right operand: half a second-level cache.
inline constexpr int64_t kBlockBytes = 512 << 10;
// Terms per block: a packed strip of rows and a tile's columns of the block
// share the first-level cache.
inline constexpr int64_t kTerms = 256;
// Multiply-adds that are worth a second thread: a few microseconds.
inline constexpr double kWorthThread = 1 << 17;

struct Buffers {
  Scratch rows, columns, vector, result, partial;
};

inline Buffers& ThreadBuffers() {
  static thread_local Buffers buffers;
  return buffers;
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace gemm

// How the work is cut: parts of the rows, the columns and the terms.
template <typename T>
struct Gemm<T>::Grid {
  int64_t m = 1, n = 1, k = 1;

  static Range Part(int64_t size, int64_t parts, int64_t i, int64_t unit) {
    const int64_t units = gemm::CeilDiv(size, unit);
    return {std::min(size, units * i / parts * unit),
            std::min(size, units * (i + 1) / parts * unit)};
  }
};

template <typename T>
Gemm<T>::Gemm(const Product& product, uint8_t native) : p_(product) {
  // A dimension of one element may have any stride: take the handiest.
  const auto normalise = [](int64_t& stride, int64_t size) {
    if (size == 1) stride = 1;
  };
  normalise(p_.lhs.column, p_.k);
  normalise(p_.rhs.column, p_.k);
  normalise(p_.rhs.row, p_.n);
  normalise(p_.result.column, p_.n);
  normalise(p_.result.row, p_.m);
  // Exchange the operands where that makes the result's columns dense, or
  // makes a matrix times a vector a vector times a matrix.
  const bool dense_rows = p_.result.row == 1 && p_.result.column != 1;
  exchanged_ = p_.m != 1 && (p_.n == 1 || dense_rows);
  if (exchanged_) {
    std::swap(p_.m, p_.n);
    std::swap(p_.lhs, p_.rhs);
    std::swap(p_.result.row, p_.result.column);
  }
  lhs_native_ = p_.lhs.dtype == native;
  rhs_native_ = p_.rhs.dtype == native;
  result_native_ = p_.result.dtype == native && p_.result.column == 1;
  load_lhs_ = LoadRunOf<T>(p_.lhs.dtype);
  load_rhs_ = LoadRunOf<T>(p_.rhs.dtype);
  store_ = StoreRunOf<T>(p_.result.dtype);
}

template <typename T>
void Gemm<T>::Run(const char* lhs, const char* rhs, char* result,
                  ThreadPool& threads) const {
  if (exchanged_) std::swap(lhs, rhs);
  const Grid grid = Split(threads.threads());
  const int64_t parts = p_.batch * grid.m * grid.n;
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * p_.batch;
  if (parts == 0 || p_.m == 0 || p_.n == 0) return;
  if (grid.k == 1) {
    const double grain = gemm::kWorthThread * parts / (work + 1);
    threads.For(
        parts, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t in_batch = i % (grid.m * grid.n);
            RunPart(
                lhs, rhs, result, i / (grid.m * grid.n),
                Grid::Part(p_.m, grid.m, in_batch / grid.n, 1),
                Grid::Part(p_.n, grid.n, in_batch % grid.n, kTileColumns<T>));
          }
        });
    return;
  }
  // Few sums of many terms: each thread takes some of the terms of all sums.
  const int64_t sums = p_.m * p_.n;
  T* partial = gemm::ThreadBuffers().partial.Get<T>(grid.k * p_.batch * sums);
  threads.For(grid.k * p_.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / grid.k;
      Sum(lhs + b * p_.lhs.batch * p_.lhs.item_size,
          rhs + b * p_.rhs.batch * p_.rhs.item_size, {0, p_.m}, {0, p_.n},
          Grid::Part(p_.k, grid.k, i % grid.k, 1), partial + i * sums, p_.n,
          /*add=*/false);
    }
  });
  for (int64_t b = 0; b < p_.batch; ++b) {
    T* total = partial + b * grid.k * sums;
    for (int64_t part = 1; part < grid.k; ++part) {
      for (int64_t i = 0; i < sums; ++i) total[i] += total[part * sums + i];
    }
    StoreRows(total, {0, p_.m}, {0, p_.n},
              result + b * p_.result.batch * p_.result.item_size);
  }
}

template <typename T>
typename Gemm<T>::Grid Gemm<T>::Split(int threads) const {
  using gemm::CeilDiv;
  Grid best;
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * p_.batch;
  const int64_t target = std::min(2.0 * threads, work / gemm::kWorthThread);
  if (threads == 1 || target <= p_.batch) return best;
  const int64_t pieces = CeilDiv(target, p_.batch);
  double least = 0;
  for (int64_t m = 1; m <= std::min(pieces, p_.m); ++m) {
    const int64_t n = std::min(pieces / m, CeilDiv(p_.n, kTileColumns<T>));
    const double rows = CeilDiv(p_.m, m);
    const double columns =
        CeilDiv(CeilDiv(p_.n, n), kTileColumns<T>) * kTileColumns<T>;
    // Cycles per term: a vector of products each, and about half a cycle for
    // each element that is packed.
    const double part = rows * columns / kLanes<T> + (rows + columns) / 2;
    const double time = part * CeilDiv(m * n * p_.batch, threads);
    if (least != 0 && time >= least) continue;
    least = time;
    best.m = m;
    best.n = n;
  }
  // Where the sums are too few, or too narrow a stripe for each thread.
  const int64_t tiles = p_.m * CeilDiv(p_.n, kTileColumns<T>) * p_.batch;
  if (tiles < 2 * threads && p_.k >= 2048) {
    best = {.m = 1, .n = 1, .k = std::min(pieces, p_.k / 1024)};
  }
  return best;
}

template <typename T>
void Gemm<T>::RunPart(const char* lhs, const char* rhs, char* result,
                      int64_t batch, Range m, Range n) const {
  lhs += batch * p_.lhs.batch * p_.lhs.item_size;
  rhs += batch * p_.rhs.batch * p_.rhs.item_size;
  result += batch * p_.result.batch * p_.result.item_size;
  const Range k = {0, p_.k};
  if (result_native_) {
    Sum(lhs, rhs, m, n, k,
        reinterpret_cast<T*>(result) + m.begin * p_.result.row + n.begin,
        p_.result.row, p_.adds);
    return;
  }
  // Sums in T first, in blocks that stay in the cache.
  constexpr int64_t kRows = 16 * kTileRows, kColumns = 512;
  for (int64_t i = m.begin; i < m.end; i += kRows) {
    for (int64_t j = n.begin; j < n.end; j += kColumns) {
      const Range rows = {i, std::min(m.end, i + kRows)};
      const Range columns = {j, std::min(n.end, j + kColumns)};
      T* sums = gemm::ThreadBuffers().result.Get<T>(kRows * kColumns);
      Sum(lhs, rhs, rows, columns, k, sums, columns.size(), /*add=*/false);
      StoreRows(sums, rows, columns, result);
    }
  }
}

template <typename T>
void Gemm<T>::StoreRows(const T* from, Range m, Range n, char* result) const {
  for (int64_t i = m.begin; i < m.end; ++i) {
    const int64_t at = i * p_.result.row + n.begin * p_.result.column;
    if (p_.adds) {
      T* const to = reinterpret_cast<T*>(result) + at;
      for (int64_t j = 0; j < n.size(); ++j)
        to[j * p_.result.column] += from[j];
    } else {
      store_(from, n.size(), result + at * p_.result.item_size,
             p_.result.column);
    }
    from += n.size();
  }
}

template <typename T>
void Gemm<T>::Sum(const char* lhs, const char* rhs, Range m, Range n, Range k,
                  T* to, int64_t to_row, bool add) const {
  if (k.size() == 0) {
    if (add) return;
    for (int64_t i = 0; i < m.size(); ++i) {
      std::fill_n(to + i * to_row, n.size(), T{});
    }
    return;
  }
  lhs += (m.begin * p_.lhs.row + k.begin * p_.lhs.column) * p_.lhs.item_size;
  rhs += (n.begin * p_.rhs.row + k.begin * p_.rhs.column) * p_.rhs.item_size;
  // Very few terms write more than they compute: best row after row.
  const bool flat = rhs_native_ && p_.rhs.row == 1 && k.size() <= 4;
  if (m.size() == 1 || (flat && n.size() >= 4 * kTileColumns<T>)) {
    for (int64_t i = 0; i < m.size(); ++i) {
      SumVector(lhs + i * p_.lhs.row * p_.lhs.item_size, rhs, n.size(),
                k.size(), to + i * to_row, add);
    }
  } else {
    SumBlocks(lhs, rhs, m.size(), n.size(), k.size(), to, to_row, add);
  }
}

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

template <typename T>
void Gemm<T>::SumVector(const char* lhs, const char* rhs, int64_t n, int64_t k,
                        T* to, bool add) const {
  const Matrix& b = p_.rhs;
  gemm::Buffers& buffers = gemm::ThreadBuffers();
  const T* x = reinterpret_cast<const T*>(lhs);
  if (!lhs_native_ || p_.lhs.column != 1) {
    T* dense = buffers.vector.Get<T>(k);
    load_lhs_(lhs, p_.lhs.column, k, dense);
    x = dense;
  }
  constexpr int64_t kBlock = 2048, kGroup = 4;
  if ((b.row == 1 && n > 1) || (b.column != 1 && n >= kLanes<T>)) {
    // Whole rows of the matrix, each times one element.
    for (int64_t j = 0; j < n; j += kBlock) {
      const int64_t columns = std::min(kBlock, n - j);
      for (int64_t i = 0; i < k;) {
        const int64_t group = k - i < kGroup ? 1 : kGroup;
        const char* from = rhs + (j * b.row + i * b.column) * b.item_size;
        const T* rows = reinterpret_cast<const T*>(from);
        int64_t step = b.column;
        if (!rhs_native_ || b.row != 1) {
          T* dense = buffers.rows.Get<T>(kGroup * kBlock);
          for (int64_t r = 0; r < group; ++r) {
            load_rhs_(from + r * b.column * b.item_size, b.row, columns,
                      dense + r * kBlock);
          }
          rows = dense;
          step = kBlock;
        }
        const bool more = add || i > 0;
        const auto sum =
            group == 1 ? more ? ScaledRows<T, 1, true> : ScaledRows<T, 1, false>
            : more     ? ScaledRows<T, kGroup, true>
                       : ScaledRows<T, kGroup, false>;
        sum(x + i, rows, step, columns, to + j);
        i += group;
      }
    }
    return;
  }
  if (!add) std::fill_n(to, n, T{});
  // Dot products with dense columns.
  const bool direct = rhs_native_ && b.column == 1;
  const int64_t terms = direct ? k : kBlock;
  for (int64_t i = 0; i < k; i += terms) {
    const int64_t size = std::min(terms, k - i);
    for (int64_t j = 0; j < n; j += kGroup) {
      const int64_t group = std::min(kGroup, n - j);
      const char* from = rhs + (j * b.row + i * b.column) * b.item_size;
      const T* columns = reinterpret_cast<const T*>(from);
      int64_t step = b.row;
      if (!direct) {
        T* dense = buffers.rows.Get<T>(kGroup * kBlock);
        for (int64_t c = 0; c < group; ++c) {
          load_rhs_(from + c * b.row * b.item_size, b.column, size,
                    dense + c * kBlock);
        }
        columns = dense;
        step = kBlock;
      }
      if (group == kGroup) {
        AddDots<T, kGroup>(x + i, columns, step, size, to + j);
        continue;
      }
      for (int64_t c = 0; c < group; ++c) {
        AddDots<T, 1>(x + i, columns + c * step, step, size, to + j + c);
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
  } else if (lhs_native_ && a.column == 1) {
    TransposeRun(reinterpret_cast<const T*>(lhs), a.row, rows, k, to, rows);
  } else if (a.row == 1) {
    for (int64_t i = 0; i < k; ++i) {
      load_lhs_(lhs + i * a.column * a.item_size, 1, rows, to + i * rows);
    }
  } else {
    T* dense = gemm::ThreadBuffers().vector.Get<T>(rows * k);
    for (int64_t r = 0; r < rows; ++r) {
      load_lhs_(lhs + r * a.row * a.item_size, a.column, k, dense + r * k);
    }
    TransposeRun(dense, k, rows, k, to, rows);
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
    const char* from = rhs + j * b.row * b.item_size;
    if (rhs_native_ && b.column == 1) {
      TransposeRun(reinterpret_cast<const T*>(from), b.row, width, k, to,
                   kWidth);
      continue;
    }
    T* dense = gemm::ThreadBuffers().vector.Get<T>(kWidth * k);
    for (int64_t c = 0; c < width; ++c) {
      load_rhs_(from + c * b.row * b.item_size, b.column, k, dense + c * k);
    }
    TransposeRun(dense, k, width, k, to, kWidth);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_IMPL_H_
