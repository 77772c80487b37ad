// Folds: how a reduction adds elements to its running totals.
//
// A fold's functions work on the two shapes that elements come in: rows, each
// of which is folded into one total, and columns, each of which is. Elements
// are of a register type (but for the folds at the end) and lie side by side
// within a row.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

// A block of elements.
struct FoldInput {
  const char* values;
  // ARGMAX and ARGMIN: the elements' indices, int64_t and laid out as the
  // values are; null if they count from `first` along the reduced dimension.
  const int64_t* indices;
  int64_t first;
  int64_t step;  // from row to row, in elements
  int64_t rows;
  int64_t columns;
};

// Where a fold's results go: one element each `stride` elements.
struct FoldOutput {
  char* data;
  int64_t stride;
  uint8_t dtype;
};

struct Fold {
  int64_t total_size;  // bytes of a running total, at most kMostTotalSize
  void (*start)(int64_t n, char* totals);
  void (*rows)(const FoldInput& input, char* totals);
  void (*columns)(const FoldInput& input, char* totals);
  // Folds other totals of the same elements' later parts in.
  void (*merge)(const char* from, int64_t n, char* totals);
  // One output, or (value, index).
  void (*finish)(const char* totals, int64_t n, const FoldOutput* outputs);
};

inline constexpr int64_t kMostTotalSize = 16;

// The fold of a kind other than GENERAL; null if it has none for the type.
template <typename T>
const Fold* FoldOf(program::ReduceKind kind);

// Folds that read the memory themselves what else a register program would
// have to: f16 and bf16 as F32, and the squares of floats. Null if there is
// none for the element type and the kind.
const Fold* FoldOfHalves(uint8_t dtype, program::ReduceKind kind);
const Fold* FoldOfSquares(uint8_t dtype, program::ReduceKind kind);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_
