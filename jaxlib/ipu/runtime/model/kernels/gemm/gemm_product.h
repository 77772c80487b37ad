// The description of a matrix product, and its normal form.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// One dimension of the iteration space, with its stride in each matrix in
// elements; 0 where the matrix is broadcast along it.
struct ProductLoop {
  int64_t extent;
  int64_t lhs, rhs, result;
};

struct ElementType {
  DType dtype;
  uint32_t item_size;              // bytes
  const char* constant = nullptr;  // see View
};

// result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, n, k], where each index
// enumerates a list of dimensions, outermost first.
struct Product {
  std::vector<ProductLoop> batch, m, n, k;
  ElementType lhs, rhs, result;
  bool adds = false;  // add to the result, which must then be of type T
};

// One matrix of a product. An operand's rows are indexed by m or n and its
// columns by k; the result's rows by m and its columns by n.
struct Matrix {
  DType dtype;
  uint32_t item_size;
  const char* constant;
  Axis batch, row, column;
};

// A product in normal form: loops are sorted by stride, and operands are
// swapped where that makes the result's columns dense. The result's columns are
// evenly spaced; dimensions of n that prevent that are moved to the batch.
struct NormalProduct {
  explicit NormalProduct(Product product);

  int64_t batch, m, n, k;
  Matrix lhs, rhs, result;
  bool adds;
  bool exchanged = false;  // lhs and rhs, and so m and n, were swapped
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
