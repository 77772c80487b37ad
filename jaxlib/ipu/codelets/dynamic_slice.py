"""DynamicSlice: a slice whose start is known at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxlib.ipu.codelets import _windows
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Codelet,
  Cycles,
  Extents,
  ceil_div,
)
from jaxlib.ipu.codelets._inner_loops import VECTOR
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


class DynamicSliceCodelet(Codelet):
  """Cycles: DynamicSlice1D and DynamicUpdateSlice1D
  (popopsCycleEstimators.cpp) [S].

  11 + 14 + 6 * (39 + regions * (24 + 2 * vectors)): a region is what lies
  together along the dimensions that do not move. 8-bit types: 76 and 72.
  """

  record: ClassVar[type] = schema.DynamicSlice

  def cycles(
    self,
    target: Target,
    fields: Any,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> Cycles:
    dtype = operand_dtypes[0]
    regions: Any = 1.0
    elements: Any = 1.0
    for d, extent in enumerate(cell):
      if d in fields.dynamic_dims:
        regions = regions * extent
      else:
        elements = elements * extent
    start, per_region = (76, 72) if SIZE[dtype] == 1 else (39, 24)
    per_worker = ceil_div(elements, target.num_workers)
    vectors = ceil_div(per_worker, VECTOR[dtype])
    worker = start + regions * (per_region + 2 * vectors)
    return target.launch_cycles + 11 + 14 + target.num_workers * worker

  def vertex(
    self, fields: Any, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operand 0 is what the owners serve: all of it."""
    operand, *start = operands
    at = _windows.moved(fields.dynamic_dims, start, cell, operand.shape)
    return [operand[at]]


CODELET = DynamicSliceCodelet()
