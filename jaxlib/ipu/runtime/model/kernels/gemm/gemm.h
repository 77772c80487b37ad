// Batched matrix products with arbitrary strides and element types.
//
// Computes a `Product` in type T: float, double, or the integers modulo 2^32 or
// 2^64 (uint32_t, uint64_t). Operands are packed from their strided storage and
// converted to T on the way, so transposes, broadcasts and narrow types cost no
// extra pass. Convolutions are products whose rows overlap.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS {

namespace gemm {

template <typename T>
class BoxedProduct;
template <typename T>
class FourierProduct;
template <typename T>
class FourierRows;

}  // namespace gemm

template <typename T>
class Gemm {
 public:
  // LoadRunOf<T> and StoreRunOf<T> must support the element types. `native` is
  // the element type that equals T.
  Gemm(const Product& product, DType native);

  void Run(const char* lhs, const char* rhs, char* result,
           ThreadPool& threads) const;

  // Whether it is computed by a fast Fourier transform.
  bool ReadsNoMatrix() const {
    return fourier_rows_ != nullptr || fourier_ != nullptr;
  }

 private:
  using Range = IndexRange;
  struct Grid;
  struct ResultRows;

  Grid Split(int threads) const;
  void RunPart(const char* lhs, const char* rhs, char* result, int64_t batch,
               Range m, Range n) const;
  // Sums the products over the terms `k` for the given rows and columns. Rows
  // of sums have dense columns. `add` adds to what they contain.
  void Sum(const char* lhs, const char* rhs, Range m, Range n, Range k,
           const ResultRows& to, bool add) const;
  void SumBlocks(const char* lhs, const char* rhs, Range m, Range n, Range k,
                 const ResultRows& to, bool add) const;
  // Whether tiles read the windows of a convolution where they are.
  static bool IsDirect(const Matrix& windows);
  // Whether neither the operands nor the result are converted.
  bool IsNative() const {
    return lhs_native_ && rhs_native_ && p_.result.item_size == sizeof(T);
  }
  // Vectors times vectors or matrices, with the batch innermost in memory.
  bool IsAlongBatch() const;
  void RunAlongBatch(const char* lhs, const char* rhs, char* result,
                     ThreadPool& threads) const;
  // Vectors times vectors.
  bool IsBatchOfDots() const;
  void RunBatchOfDots(const char* lhs, const char* rhs, char* result,
                      ThreadPool& threads) const;
  // Few rows, and columns whose terms are contiguous.
  bool IsDots(Range m, Range n, Range k) const;
  void SumDots(const char* lhs, const char* rhs, Range m, Range n, Range k,
               const ResultRows& to, bool add) const;
  void SumVector(const char* lhs, const char* rhs, int64_t row, Range n,
                 Range k, T* to, bool add) const;
  void StoreRows(const T* from, Range m, Range n, char* result) const;

  // Many small products, in the form of `small_`.
  static NormalProduct ByColumns(const NormalProduct& p);
  static bool IsSmall(const NormalProduct& p);
  void RunSmall(const char* lhs, const char* rhs, char* result,
                ThreadPool& threads) const;
  struct Small;
  void PackSide(const Small& of, LoadRun<T> load, const char* from, Range side,
                bool first, T* to) const;
  void StoreSide(const Small& of, const T* from, Range side,
                 char* result) const;

  // Stores one element of each result, or adds to it, for a range of the batch.
  void StoreBatch(const NormalProduct& p, const T* from, Range side, int64_t at,
                  char* result) const;

  // Pack at most kTileRows rows, or columns in panels of kTileColumns. Packed
  // elements are grouped by term.
  void PackRows(const char* lhs, Range rows, Range k, T* to) const;
  void PackColumns(const char* rhs, Range columns, Range k, T* to) const;

  // Whether blocks multiply terms in pairs; see gemm_pairs.h.
  bool InPairs() const { return std::is_same_v<T, uint32_t> && short_; }

  NormalProduct p_;
  NormalProduct small_;
  bool lhs_native_;
  bool rhs_native_;
  bool result_native_;
  bool short_;  // all elements fit in 16 bits
  // One of these computes the product instead, if not null.
  std::shared_ptr<const gemm::FourierRows<T>> fourier_rows_;
  std::shared_ptr<const gemm::FourierProduct<T>> fourier_;
  std::shared_ptr<const gemm::BoxedProduct<T>> boxes_;
  LoadRun<T> load_lhs_;
  LoadRun<T> load_rhs_;
  StoreRun<T> store_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_
