// Batched matrix products of any strides and element types.
//
// result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, n, k], computed in T:
// float, double, or the integers modulo 2^32 or 2^64 (uint32_t, uint64_t); or
// the same added to what the result holds.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert_run.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"

namespace ipu::model::IPU_SIMD_NS {

// One matrix of a product, as steps in elements. An operand's `row` goes with
// m or n and its `column` with k; the result's go with m and n.
struct Matrix {
  uint8_t dtype;
  uint32_t item_size;  // bytes
  int64_t batch;
  int64_t row;
  int64_t column;
};

struct Product {
  int64_t batch, m, n, k;
  Matrix lhs, rhs, result;
  bool adds = false;  // only to a result of T's own type
};

template <typename T>
class Gemm {
 public:
  // The types must be ones that LoadRunOf<T> and StoreRunOf<T> know. `native`
  // is the element type that T computes in without conversion.
  Gemm(const Product& product, uint8_t native);

  void Run(const char* lhs, const char* rhs, char* result,
           ThreadPool& threads) const;

 private:
  // A part of the work: batches, rows, columns and terms [begin, end).
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  struct Grid;

  Grid Split(int threads) const;
  void RunPart(const char* lhs, const char* rhs, char* result, int64_t batch,
               Range m, Range n) const;
  // Adds up the terms `k` of the given rows and columns into dense rows, or
  // with `add` to what those hold.
  void Sum(const char* lhs, const char* rhs, Range m, Range n, Range k, T* to,
           int64_t to_row, bool add) const;
  void SumBlocks(const char* lhs, const char* rhs, int64_t m, int64_t n,
                 int64_t k, T* to, int64_t to_row, bool add) const;
  void SumVector(const char* lhs, const char* rhs, int64_t n, int64_t k, T* to,
                 bool add) const;
  void StoreRows(const T* from, Range m, Range n, char* result) const;

  void PackRows(const char* lhs, int64_t rows, int64_t k, T* to) const;
  void PackColumns(const char* rhs, int64_t columns, int64_t k, T* to) const;

  Product p_;  // with the operands perhaps exchanged
  bool exchanged_;
  bool lhs_native_;
  bool rhs_native_;
  bool result_native_;
  LoadRun<T> load_lhs_;
  LoadRun<T> load_rhs_;
  StoreRun<T> store_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_H_
