// Products with Fourier matrices: detection and loops; see gemm_mirror.h.
// Included only by gemm_*.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_buffers.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_mirror.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_pack.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_tile.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
typename Gemm<T>::Fourier Gemm<T>::FindFourier() const {
  // With few terms little is saved. The matrix is scanned before each product,
  // so the other operand must have at least kWorthMatrix elements for each
  // element of the matrix.
  constexpr int64_t kLeastTerms = 8, kMostTerms = 256, kWorthMatrix = 16;
  constexpr int64_t kMostMatrices = 4;
  if (p_.k < kLeastTerms || p_.k > kMostTerms || !result_native_ ||
      p_.batch == 0 || !std::is_floating_point_v<T>) {
    return {};
  }
  for (bool lhs : {false, true}) {
    const Matrix& matrix = lhs ? p_.lhs : p_.rhs;
    const Matrix& data = lhs ? p_.rhs : p_.lhs;
    const int64_t size = lhs ? p_.m : p_.n, others = lhs ? p_.n : p_.m;
    if (!(lhs ? lhs_native_ : rhs_native_) || !matrix.row.even() ||
        !matrix.column.even()) {
      continue;
    }
    // The innermost part of the batch must apply `count` matrices to the same
    // data, and the rest of the batch must repeat the same matrices.
    int64_t count = 1;
    while (count < p_.batch && count <= kMostMatrices &&
           data.batch.At(count) == data.batch.At(0)) {
      ++count;
    }
    if (count > kMostMatrices || p_.batch % count != 0 ||
        others * (p_.batch / count) < kWorthMatrix * size * count) {
      continue;
    }
    bool again = true;
    for (int64_t b = 0; again && b < p_.batch; ++b) {
      again = matrix.batch.At(b) == matrix.batch.At(b % count) &&
              data.batch.At(b) == data.batch.At(b - b % count);
    }
    if (again) return {.lhs = lhs, .matrices = count};
  }
  return {};
}

template <typename T>
std::vector<typename Gemm<T>::Mirrored> Gemm<T>::MirroredParts(
    const char* lhs, const char* rhs) const {
  if (fourier_.matrices == 0) return {};
  const Matrix& matrix = fourier_.lhs ? p_.lhs : p_.rhs;
  const T* const data = reinterpret_cast<const T*>(fourier_.lhs ? lhs : rhs);
  // Rows have one plane, or two.
  for (int64_t planes = 1; planes <= 2 && p_.k % planes == 0; ++planes) {
    std::vector<Mirrored> parts;
    int64_t i = 0;
    for (; i < fourier_.matrices; ++i) {
      if (!gemm::AddMirroredColumns<T>(
              {data + matrix.batch.At(i), p_.k, matrix.column.stride(),
               fourier_.lhs ? p_.m : p_.n, matrix.row.stride()},
              p_.k / planes, i, parts)) {
        break;
      }
    }
    if (i == fourier_.matrices && gemm::AreFourier(parts)) return parts;
  }
  return {};
}

template <typename T>
void Gemm<T>::RunFourier(const char* lhs, const char* rhs, char* result,
                         const std::vector<Mirrored>& parts,
                         ThreadPool& threads) const {
  using gemm::CeilDiv;
  constexpr int64_t kWidth = kTileColumns<T>;
  // Rows or columns of the data that are packed at a time.
  const int64_t unit = fourier_.lhs ? kWidth : kTileRows;
  const int64_t size = fourier_.lhs ? p_.n : p_.m;
  const int64_t units = CeilDiv(size, unit);
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * p_.batch;
  const int64_t all = units * (p_.batch / fourier_.matrices);
  const int64_t grain = gemm::kWorthThread * all / (work + 1);
  threads.For(all, std::max<int64_t>(1, grain),
              [&](int64_t begin, int64_t end) {
                while (begin < end) {
                  const int64_t batch = begin / units, first = begin % units;
                  const int64_t count = std::min(end - begin, units - first);
                  RunFourierPart(
                      lhs, rhs, result, parts, batch * fourier_.matrices,
                      {first * unit, std::min(size, (first + count) * unit)});
                  begin += count;
                }
              });
}

template <typename T>
void Gemm<T>::RunFourierPart(const char* lhs, const char* rhs, char* result,
                             const std::vector<Mirrored>& parts, int64_t batch,
                             Range range) const {
  constexpr int64_t kWidth = kTileColumns<T>;
  gemm::Buffers& buffers = gemm::ThreadBuffers();
  const auto result_of = [&](const Mirrored& part) {
    return reinterpret_cast<T*>(result) +
           p_.result.batch.At(batch + part.matrix);
  };
  TileArgs<T> tile{};
  tile.add = p_.adds;
  if (fourier_.lhs) {
    rhs += p_.rhs.batch.At(batch) * p_.rhs.item_size;
    T* packed = buffers.columns.Get<T>(2 * kWidth * p_.k + kWidth);
    T* added = packed + kWidth * p_.k + kWidth;
    const gemm::Packer<T> packer{p_.rhs, rhs_native_, load_rhs_};
    tile.b = added;
    for (int64_t j = range.begin; j < range.end; j += kWidth) {
      tile.columns = std::min(kWidth, range.end - j);
      // Round up to one or two whole vectors.
      tile.b_k = gemm::CeilDiv(tile.columns, kLanes<T>) * kLanes<T>;
      packer.Pack(rhs, {j, j + tile.columns}, {0, p_.k}, packed, tile.b_k);
      for (const Mirrored& part : parts) {
        gemm::AddPairs(packed, tile.b_k, part, added);
        const ResultRows to = {result_of(part) + j, 0, &p_.result.row};
        tile.k = part.terms();
        tile.a_k = part.columns.size();
        to.ForStrips(part.columns, [&](int64_t first, int64_t rows, T* c,
                                       int64_t c_row) {
          tile.a = part.rows.data() + first;
          tile.c = c;
          tile.c_row = c_row;
          TileFor<T>(rows, tile.columns, TileKind::kDenseRows)(tile);
        });
      }
    }
    return;
  }
  lhs += p_.lhs.batch.At(batch) * p_.lhs.item_size;
  T* packed = buffers.rows.Get<T>(2 * kTileRows * p_.k + 2 * kWidth);
  T* added = packed + kTileRows * p_.k + kWidth;
  const gemm::Packer<T> packer{p_.lhs, lhs_native_, load_lhs_};
  const ResultRows to = {nullptr, 0, &p_.result.row};
  tile.a = added;
  to.ForStrips(range, [&](int64_t first, int64_t rows, T* c, int64_t c_row) {
    first += range.begin;
    packer.Pack(lhs, {first, first + rows}, {0, p_.k}, packed, rows);
    tile.a_k = rows;
    tile.c_row = c_row;
    for (const Mirrored& part : parts) {
      gemm::AddPairs(packed, rows, part, added);
      tile.k = part.terms();
      tile.b_k = part.columns.size();
      for (int64_t j = 0; j < part.columns.size(); j += kWidth) {
        tile.columns = std::min(kWidth, part.columns.size() - j);
        tile.b = part.rows.data() + j;
        tile.c = result_of(part) + (c - to.to) + part.columns.begin + j;
        TileFor<T>(rows, tile.columns, TileKind::kDenseRows)(tile);
      }
    }
  });
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_FOURIER_H_
