// Cycles of the vertices for a block of a matrix product of floats.

#ifndef JAXLIB_IPU_RUNTIME_PLAN_DOT_CYCLES_H_
#define JAXLIB_IPU_RUNTIME_PLAN_DOT_CYCLES_H_

namespace ipu::plan {

// What vertices depend on (codelets/_dot_cycles.py). All are whole numbers.
struct DotUnit {
  double f16;         // Whether operands are f16, not f32.
  double f16_sums;    // Whether partial sums are.
  double sum_vector;  // Partial sums in a vector.
  double workers;
  double fp32_macs, fp16_macs, coefficient_load_bytes;  // See Target.
};

// The extents of a tile's block; whole numbers.
struct Block {
  double batch;
  double rows;     // Of the left operands, a vertex's field.
  double columns;  // Of the right operands, its output channels.
  double depth;    // Terms of a sum, its input channels.

  // That of the transposed product.
  Block Turned() const { return {batch, columns, rows, depth}; }
};

// The input channels that the matrix unit takes at a time.
double ChainOf(const DotUnit& unit);

// ConvPartial1x1Out: rows through weights of (depth, columns).
//
// poplin/PerformanceEstimation.hpp [S]; with one group of each kind and f16
// partials it is compared with 128 points measured on a Bow. Coefficients are
// loaded at `coefficient_load_bytes` per cycle.
double AmpCycles(const DotUnit& unit, const Block& block);

// ConvPartialHorizontalMac: dot products on the vector unit, one per row and
// column; the workers share the rows. poplin/PerformanceEstimation.hpp [S],
// with all of the depth as one group. f16 operands with f32 partials have the
// vertex for 1x1 kernels.
double HmacCycles(const DotUnit& unit, const Block& block);

// Like HmacCycles, for one column, where each worker takes as many terms,
// wherever they begin and end in the rows, one after the other. A second pass
// adds up the sums of rows that several workers have terms of, as in reductions
// whose outputs several workers share [D].
double SharedCycles(const DotUnit& unit, const Block& block);

// OuterProduct: products of one term, a vector of columns at a time. Infinite
// if there are more terms.
//
// poplin/PerformanceEstimation.hpp, the path for few channels [S].
double OuterCycles(const DotUnit& unit, const Block& block);

}  // namespace ipu::plan

#endif  // JAXLIB_IPU_RUNTIME_PLAN_DOT_CYCLES_H_
