// What a matrix product multiplies, in the order that suits its memory.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"

namespace ipu::model::IPU_SIMD_NS {

// One dimension of the iteration space: elements to step in each matrix, 0
// where it is broadcast.
struct ProductLoop {
  int64_t extent;
  int64_t lhs, rhs, result;
};

struct ElementType {
  uint8_t dtype;
  uint32_t item_size;              // bytes
  const char* constant = nullptr;  // see View
};

// result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, n, k], where each index
// counts some dimensions, outermost first.
struct Product {
  std::vector<ProductLoop> batch, m, n, k;
  ElementType lhs, rhs, result;
  bool adds = false;  // to what the result holds; only if that is of T's type
};

// One matrix of a product. An operand's `row` goes with m or n and its `column`
// with k; the result's go with m and n.
struct Matrix {
  uint8_t dtype;
  uint32_t item_size;
  const char* constant;
  Axis batch, row, column;
};

// A product in normal form: the result's columns are evenly spaced, as near to
// each other as they can be.
struct NormalProduct {
  explicit NormalProduct(Product product);

  int64_t batch, m, n, k;
  Matrix lhs, rhs, result;
  bool adds;
  bool exchanged = false;  // lhs and rhs, and so m and n
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
