"""DynamicSlice: a slice with a run-time start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.ipu.codelets import _windows
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
)
from jaxlib.ipu.codelets._cycles import Cycles, ceil_div, multi_vertex
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
from jaxlib.ipu.codelets._inner_loops import VECTOR
from jaxlib.ipu.codelets._kinds import SlicingCodelet
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


def copy_cycles(
  target: Target, dynamic_dims: Sequence[int], dtype: DType, cell: Extents
) -> Cycles:
  """DynamicSlice1D and DynamicUpdateSlice1D (popopsCycleEstimators.cpp) [S].

  11 + 14 + 6 * (39 + regions * (24 + 2 * vectors)): a region is contiguous
  along the dimensions that do not move. 8-bit types: 76 and 72.
  """
  regions: Any = 1.0
  elements: Any = 1.0
  for d, extent in enumerate(cell):
    if d in dynamic_dims:
      regions = regions * extent
    else:
      elements = elements * extent
  start, per_region = (76, 72) if SIZE[dtype] == 1 else (39, 24)
  per_worker = ceil_div(elements, target.num_workers)
  vectors = ceil_div(per_worker, VECTOR[dtype])
  worker = start + regions * (per_region + 2 * vectors)
  return multi_vertex(target, worker) + 14


class DynamicSliceCodelet(SlicingCodelet):
  """Cycles: DynamicSlice1D."""

  record = schema.DynamicSlice

  def cycles(
    self,
    target: Target,
    fields: schema.DynamicSlice,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    return copy_cycles(target, fields.dynamic_dims, operand_dtypes[0], cell)

  def vertex(
    self, fields: schema.DynamicSlice, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operand 0 is all of the tensor, as served by its owners."""
    operand, *start = operands
    at = _windows.moved(fields.dynamic_dims, start, cell, operand.shape)
    return [operand[at]]

  def along(
    self,
    fields: schema.DynamicSlice,
    shape: Sequence[int],
    windowed: Sequence[int],
  ) -> tuple[int, ...]:
    return _windows.along_dynamic(shape, windowed)

  def check(
    self, fields: schema.DynamicSlice, step: schema.Execute, v: Checker
  ) -> None:
    _windows.check_dynamic(v, step, fields.dynamic_dims, step.operands[0])

  def example(self) -> tuple[schema.DynamicSlice, int]:
    return schema.DynamicSlice([0]), 2


CODELET = DynamicSliceCodelet()
