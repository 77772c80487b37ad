// Where the values of a register program come from: steps that bring operands
// and indices.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/instructions/step.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// What a step that brings an operand or an index needs to know.
struct Source {
  StridedIterator iterator;
  ConvertFn convert;       // null if elements are register values
  uint32_t width;          // bytes of a register value
  uint8_t dtype = 0;       // of the elements
  uint16_t home = 0;       // slot of the buffer that is this value's own
  int64_t period = 0;      // of a walk that repeats; of one in rows, a row
  bool pattern = false;    // home holds a period and a block, filled once
  int64_t panel_rows = 0;  // of a transposed walk: rows laid out at a time
  uint16_t panel = 0;      // slot of a PanelHeader and those rows
  int64_t inner = 0;       // IOTA: elements in a row with the same index
  int64_t extent = 0;      // IOTA: number of indices
};

// What lies in a panel: the rows from this flat index on.
struct alignas(64) PanelHeader {
  int64_t begin = -1;
};

// The source that a step brings; its address is the step's immediate.
inline const Source& SourceOf(const Step& s) {
  return *reinterpret_cast<const Source*>(s.imm);
}

// Values that are read where they are: the slot is pointed there.
void PointAtOperand(const Step& s, const Frame& f);
// A long row, one of many or one that repeats: in place where the block does
// not reach beyond its end, else copied to `home`.
void PointIntoRow(const Step& s, const Frame& f);
// A short row that repeats, which FillPattern has laid out in `home`.
void PointIntoPattern(const Step& s, const Frame& f);
// Part of a matrix that lies column after column. Its rows are laid out some
// at a time, for so each cache line is read once.
void PointIntoPanel(const Step& s, const Frame& f);

// Values that are put into the slot's buffer.
void LoadUniform(const Step& s, const Frame& f);  // one vector of the first
void LoadDense(const Step& s, const Frame& f);    // converted
void LoadGather(const Step& s, const Frame& f);   // from anywhere
void CopyBlock(const Step& s, const Frame& f);    // of another slot; imm: width

// The indices along a dimension, as a register type.
StepFn FindIota(program::RegisterType type);

// Lays out `n` values of a row that repeats, `block` at a time.
void FillPattern(const Source& source, const Frame& f, int64_t n,
                 int64_t block);

// How many rows of a transposed walk to lay out at a time; 0 if it is none or
// that is not worth it.
int64_t PanelRows(const StridedIterator& iterator);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SOURCE_H_
