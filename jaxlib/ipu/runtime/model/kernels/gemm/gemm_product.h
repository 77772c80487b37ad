// The description of a matrix product, and its normal form.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/gemm/fourier_matrix.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_axis.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// One dimension of the iteration space, with its stride in each matrix in
// elements; 0 where the matrix is broadcast along it.
struct ProductLoop {
  int64_t extent;
  int64_t lhs, rhs, result;
};

using ProductLoops = std::vector<ProductLoop>;

struct ElementType {
  DType dtype;
  uint32_t item_size;  // bytes
};

// result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, n, k], where each index
// enumerates a list of dimensions, outermost first.
struct Product {
  ProductLoops batch, m, n, k;
  ElementType lhs, rhs, result;
  bool adds = false;  // add to the result, which must then be of type T
  // What rhs is, or is a part of, if that is known.
  std::optional<gemm::FourierMatrix> fourier = std::nullopt;
};

// One matrix of a product. An operand's rows are indexed by m or n and its
// columns by k; the result's rows by m and its columns by n.
struct Matrix {
  DType dtype;
  uint32_t item_size;
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

// The number of indices of nested loops.
int64_t Extent(const ProductLoops& loops);

// The offsets of these indices in one of the matrices.
Axis AxisOf(const ProductLoops& loops, int64_t ProductLoop::* stride);

// Loops without those of extent 1, those with the largest stride in the result
// first.
ProductLoops SortedByResult(ProductLoops loops);

// Loops over rows (m) in the order in which to compute them: sorted by the
// result, unless that reads one element of each cache line of lhs where another
// order reads whole lines. `n` is sorted by the result.
ProductLoops SortedRows(ProductLoops m, const ProductLoops& n,
                        int64_t lhs_bytes, int64_t result_bytes);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_PRODUCT_H_
