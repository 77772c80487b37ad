// Folds: functions that reduce blocks of elements into running totals.
//
// A fold takes a block of elements as a matrix and folds either each row or
// each column of it into one total. The elements of a row are contiguous. They
// have a register type, except for the folds at the end of this file, which
// convert elements as they load them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

// A block of elements, as a matrix.
struct FoldInput {
  const char* values;
  // ARGMAX and ARGMIN: the elements' indices, in the layout of the values. Null
  // if indices count up from `first` along the reduced dimension.
  const int64_t* indices;
  int64_t first;
  int64_t step;  // row stride, in elements
  int64_t rows;
  int64_t columns;
};

// The destination of a fold's results, with a stride in elements.
struct FoldOutput {
  char* data;
  int64_t stride;
  DType dtype;
};

// A row of windows, each folded on its own.
struct FoldWindows {
  const char* values;  // the first element of the first window
  int64_t step;        // from one window to the next, in elements
  int64_t count;       // windows
  // The elements of a window, relative to the first.
  const int64_t* places;
  int64_t num_places;
  char* to;  // dense, of the elements' type
};

struct Fold {
  int64_t total_size;  // bytes of a running total, at most kMostTotalSize
  // Initialises n totals with the identity.
  void (*start)(int64_t n, char* totals);
  // Fold each row, or each column, into one total.
  void (*rows)(const FoldInput& input, char* totals);
  void (*columns)(const FoldInput& input, char* totals);
  // Folds in the totals of later parts of the same reductions.
  void (*merge)(const char* from, int64_t n, char* totals);
  // Writes one output, or two (value and index).
  void (*finish)(const char* totals, int64_t n, const FoldOutput* outputs);
  // Folds windows of few elements. Null if there is no such function.
  void (*windows)(const FoldWindows& input) = nullptr;
};

// A limit: a value and its index, of 8 bytes each.
inline constexpr int64_t kMostTotalSize = 16;

// The fold of a kind other than GENERAL. Null if the kind is not defined for
// the type.
template <typename T>
const Fold* FoldOf(program::ReduceKind kind);

// Folds that do the work of a simple register program while loading elements:
// widening f16 and bf16 to f32, and squaring floats. Null if there is none for
// the element type and the kind.
const Fold* FoldOfHalves(DType dtype, program::ReduceKind kind);
const Fold* FoldOfSquares(DType dtype, program::ReduceKind kind);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REDUCE_FOLD_H_
