// The sources of a register program's values, operands and indices, and the
// steps that load them.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The parameters of a step that loads an operand or an index.
struct Source {
  StridedIterator iterator;
  ConvertFn convert;           // null if elements are register values
  uint32_t width;              // bytes of a register value
  DType dtype = DType::kNone;  // of the elements
  bool moved = true;           // see MovedValues
  uint16_t home = 0;           // slot of this value's own buffer
  int64_t period = 0;          // elements in a row that repeats, or in each row
  bool pattern = false;        // home holds a period and a block, filled once
  int64_t panel_rows = 0;      // transposed: rows in a panel
  uint16_t panel = 0;          // slot of a PanelHeader and those rows
  int64_t inner = 0;           // IOTA: consecutive elements with the same index
  int64_t extent = 0;          // IOTA: number of indices
};

// The contents of a panel: the rows from this flat index on.
struct alignas(64) PanelHeader {
  int64_t begin = -1;
};

// The source that a step loads.
inline const Source& SourceOf(const Step& s) {
  return *PayloadOf<const Source*>(s);
}

// Steps that point the slot at values instead of copying them.
void PointAtOperand(const Step& s, const Frame& f);
// A long contiguous row, either one of many or one that repeats. Points into
// the operand if the block does not cross the end of the row; otherwise copies
// to `home`.
void PointIntoRow(const Step& s, const Frame& f);
// A short row that repeats, which FillPattern has stored in `home`.
void PointIntoPattern(const Step& s, const Frame& f);
// Part of a matrix stored in column-major order. Its rows are transposed one
// panel at a time, so that each cache line is read once.
void PointIntoPanel(const Step& s, const Frame& f);

// Steps that fill the slot's buffer.
void LoadUniform(const Step& s, const Frame& f);  // first element, all lanes
void LoadDense(const Step& s, const Frame& f);    // dense, with conversion
void LoadGather(const Step& s, const Frame& f);   // any strides
void CopyBlock(const Step& s, const Frame& f);  // another slot; payload: width

// The step that computes the index along a dimension, as a register type.
StepFn FindIota(program::RegisterType type);

// Stores `n` values of a repeating row in `home`, `block` values at a time.
void FillPattern(const Source& source, const Frame& f, int64_t n,
                 int64_t block);

// The number of rows in a panel of a transposed iterator; 0 if panels do not
// apply or do not pay off.
int64_t PanelRows(const StridedIterator& iterator);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_
