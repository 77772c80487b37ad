// Packs parts of an operand in the order in which a product's tiles read them;
// included only by gemm_blocks.h and gemm_fourier.h. Windows of a convolution
// that tiles do not read in place are gathered here.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PACK_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PACK_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pairs.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_tile.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS::gemm {

template <typename T>
struct Packer {
  // Rows or columns of a tile.
  static constexpr int64_t kMostPieces =
      std::max<int64_t>(kTileRows, kTileColumns<T>);

  const Matrix& matrix;
  bool native;  // elements are T; no conversion
  LoadRun<T> load;
  bool pairs = false;  // two terms share one element; see gemm_pairs.h

  // Writes element (row, k) to to[k * step + row], with both indices relative
  // to their ranges; with `pairs`, k counts pairs of terms. May write one
  // vector beyond the last element.
  void Pack(const char* from, IndexRange rows, IndexRange k, T* to,
            int64_t step) const {
    if constexpr (std::is_same_v<T, uint32_t>) {
      if (pairs) {
        if (PackPairs(matrix, from, rows, k, to, step)) return;
        PackTerms(from, rows, k, to, step);
        return JoinTerms(to, step, k.size(), to);
      }
    }
    PackTerms(from, rows, k, to, step);
  }

  // Packs dense columns into panels of kTileColumns, reading row by row, in
  // memory order.
  void PackPanels(const char* from, IndexRange columns, IndexRange k,
                  T* to) const {
    constexpr int64_t kWidth = kTileColumns<T>;
    from += matrix.row.At(columns.begin) * matrix.item_size;
    const int64_t panel_step = kWidth * k.size();
    const int64_t rest = columns.size() % kWidth;
    const int64_t whole =
        std::max<int64_t>(0, rest - 1) / kLanes<T> * kLanes<T>;
    const Mask<T> mask(rest - whole);
    matrix.column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const char* row =
            from + (at + i * matrix.column.stride()) * matrix.item_size;
        T* panel = to + (first + i) * kWidth;
        int64_t j = 0;
        if (native) {
          const T* const values = reinterpret_cast<const T*>(row);
          for (; j + kWidth <= columns.size(); j += kWidth) {
            for (int64_t v = 0; v < kWidth; v += kLanes<T>) {
              Store(panel + v, Load<Vector<T>>(values + j + v));
            }
            panel += panel_step;
          }
          if (rest == 0) continue;
          for (int64_t v = 0; v < whole; v += kLanes<T>) {
            Store(panel + v, Load<Vector<T>>(values + j + v));
          }
          mask.Store(panel + whole, mask.Load(values + j + whole));
          continue;
        }
        // A whole row at a time: conversions of a few elements are all set-up.
        T* const dense = ThreadBuffers().vector.Get<T>(columns.size() + kWidth);
        load(row, 1, columns.size(), dense);
        for (; j < columns.size(); j += kWidth, panel += panel_step) {
          for (int64_t v = 0; v < kWidth; v += kLanes<T>) {
            Store(panel + v, Load<Vector<T>>(dense + j + v));
          }
        }
      }
    });
  }

 private:
  void PackTerms(const char* from, IndexRange rows, IndexRange k, T* to,
                 int64_t step) const {
    if (matrix.row.stride() == 1) {
      if (native && matrix.row.InOneRun(rows)) {
        CopyRun(from, rows, k, to, step);
      } else {
        CopyRuns(from, rows, k, to, step);
      }
    } else if (native && matrix.row.stride() == 2 &&
               matrix.column.stride() != 1) {
      CopyEverySecond(from, rows, k, to, step);
    } else {
      Interleave(from, rows, k, to, step);
    }
  }

  // Rows that are contiguous in memory. The excess lanes of a term's last
  // vector are overwritten by the next term: a masked store is slow with AVX2.
  void CopyRun(const char* from, IndexRange rows, IndexRange k, T* to,
               int64_t step) const {
    const T* const start =
        reinterpret_cast<const T*>(from) + matrix.row.At(rows.begin);
    const int64_t whole = (rows.size() - 1) / kLanes<T> * kLanes<T>;
    const Mask<T> mask(rows.size() - whole);
    matrix.column.ForRuns(k, [&](int64_t at, int64_t, int64_t count) {
      const T* row = start + at;
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t r = 0; r < whole; r += kLanes<T>)
          Store(to + r, Load<Vector<T>>(row + r));
        Store(to + whole, mask.Load(row + whole));
        row += matrix.column.stride();
        to += step;
      }
    });
  }

  // Rows in several contiguous runs.
  void CopyRuns(const char* from, IndexRange rows, IndexRange k, T* to,
                int64_t step) const {
    if (native && rows.size() <= kMostPieces) {
      return CopyPieces(from, rows, k, to, step);
    }
    matrix.row.ForRuns(rows, [&](int64_t row, int64_t r, int64_t size) {
      matrix.column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
        const char* piece = from + (row + at) * matrix.item_size;
        T* place = to + first * step + r;
        for (int64_t i = 0; i < count; ++i) {
          load(piece, 1, size, place);
          piece += matrix.column.stride() * matrix.item_size;
          place += step;
        }
      });
    });
  }

  // The same for a tile's rows or columns, without conversion: a vector or less
  // of each run at a time. The excess lanes of a piece are overwritten by the
  // next one.
  void CopyPieces(const char* from, IndexRange rows, IndexRange k, T* to,
                  int64_t step) const {
    struct Piece {
      int64_t from, to;
      Mask<T> mask{0};
    };
    Piece pieces[kMostPieces];
    int64_t num_pieces = 0;
    matrix.row.ForRuns(rows, [&](int64_t row, int64_t r, int64_t size) {
      for (int64_t i = 0; i < size; i += kLanes<T>) {
        const int64_t count = std::min<int64_t>(size - i, kLanes<T>);
        pieces[num_pieces++] = {row + i, r + i, Mask<T>(count)};
      }
    });
    matrix.column.ForRuns(k, [&](int64_t at, int64_t, int64_t count) {
      const T* term = reinterpret_cast<const T*>(from) + at;
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t p = 0; p < num_pieces; ++p) {
          const Piece& piece = pieces[p];
          Store(to + piece.to, piece.mask.Load(term + piece.from));
        }
        term += matrix.column.stride();
        to += step;
      }
    });
  }

  // Rows with stride 2 in runs: the real or imaginary parts of complex numbers.
  void CopyEverySecond(const char* from, IndexRange rows, IndexRange k, T* to,
                       int64_t step) const {
    constexpr int64_t kLane = kLanes<T>;
    matrix.row.ForRuns(rows, [&](int64_t row, int64_t begin, int64_t size) {
      for (int64_t r = 0; r < size; r += kLane) {
        const int64_t count = std::min(size - r, kLane);
        const Mask<T> mask(count);
        const Mask<T> low(std::min(2 * count - 1, kLane));
        const Mask<T> high(std::max<int64_t>(2 * count - 1 - kLane, 0));
        matrix.column.ForRuns(k, [&](int64_t at, int64_t first, int64_t terms) {
          const T* piece = reinterpret_cast<const T*>(from) + row + 2 * r + at;
          T* place = to + first * step + begin + r;
          for (int64_t i = 0; i < terms; ++i) {
            mask.Store(place,
                       EverySecond(low.Load(piece), high.Load(piece + kLane),
                                   std::make_integer_sequence<int, kLane>()));
            piece += matrix.column.stride();
            place += step;
          }
        });
      }
    });
  }

  template <int... kI>
  static Vector<T> EverySecond(Vector<T> a, Vector<T> b,
                               std::integer_sequence<int, kI...>) {
    return __builtin_shufflevector(a, b, 2 * kI...);
  }

  // Rows that are not adjacent in memory.
  void Interleave(const char* from, IndexRange rows, IndexRange k, T* to,
                  int64_t step) const {
    // Shorter runs of terms (a guess) are first gathered into dense rows.
    constexpr int64_t kWorthRun = 32;
    const Axis& column = matrix.column;
    if (native && column.stride() == 1 && matrix.row.InOneRun(rows) &&
        (column.even() || column.run() >= kWorthRun)) {
      const T* const start =
          reinterpret_cast<const T*>(from) + matrix.row.At(rows.begin);
      return column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
        TransposeRun(start + at, matrix.row.stride(), rows.size(), count,
                     to + first * step, step);
      });
    }
    // Whole vectors may be written beyond the end of each row.
    T* dense =
        ThreadBuffers().vector.Get<T>(rows.size() * k.size() + kLanes<T>);
    if (native && column.stride() == 1 && column.run() <= kLanes<T>) {
      GatherShortRuns(from, rows, k, dense);
    } else {
      for (int64_t r = 0; r < rows.size(); ++r) {
        const char* row =
            from + matrix.row.At(rows.begin + r) * matrix.item_size;
        column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
          load(row + at * matrix.item_size, column.stride(), count,
               dense + r * k.size() + first);
        });
      }
    }
    TransposeRun(dense, k.size(), rows.size(), k.size(), to, step);
  }

  // Gathers runs of terms of at most one vector each.
  void GatherShortRuns(const char* from, IndexRange rows, IndexRange k,
                       T* dense) const {
    matrix.column.ForRuns(k, [&](int64_t at, int64_t first, int64_t count) {
      const Mask<T> mask(count);
      const T* const start = reinterpret_cast<const T*>(from) + at;
      T* to = dense + first;
      matrix.row.ForRuns(rows, [&](int64_t row, int64_t, int64_t size) {
        const T* piece = start + row;
        for (int64_t r = 0; r < size; ++r) {
          mask.Store(to, mask.Load(piece));
          piece += matrix.row.stride();
          to += k.size();
        }
      });
    });
  }
};

}  // namespace ipu::model::IPU_SIMD_NS::gemm

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PACK_H_
