"""DynamicUpdate: overwrites a slice with a run-time start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxlib.ipu.codelets import _windows, reduce
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import Array, Cell, Extents
from jaxlib.ipu.codelets._cycles import Cycles
from jaxlib.ipu.codelets._hints import NO_HINTS, Hints
from jaxlib.ipu.codelets._kinds import UpdatingCodelet
from jaxlib.ipu.codelets.dynamic_slice import copy_cycles
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target


class DynamicUpdateCodelet(UpdatingCodelet):
  """Cycles: DynamicUpdateSlice1D, which costs as much as the slice."""

  record = schema.DynamicUpdate

  def cycles(
    self,
    target: Target,
    fields: schema.DynamicUpdate,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: Hints = NO_HINTS,
  ) -> Cycles:
    return copy_cycles(target, fields.dynamic_dims, operand_dtypes[0], cell)

  def vertex(
    self, fields: schema.DynamicUpdate, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operands: the update, the starts, the numbers of the result's elements.

    Returns for each element of the update its destination and its value.
    """
    update, *start, numbers = operands
    at = _windows.moved(fields.dynamic_dims, start, cell, numbers.shape)
    return [numbers[at], np.broadcast_to(update, cell.extents)]

  def partial_bytes(self, fields: schema.DynamicUpdate, dtype: DType) -> int:
    return SIZE[dtype]  # no element is updated twice

  def combining(self, fields: schema.DynamicUpdate, dtype: DType) -> Cycles:
    return reduce.per_element(ReduceKind.SET, [dtype], Code(), ())

  def along(
    self,
    fields: schema.DynamicUpdate,
    shape: Sequence[int],
    windowed: Sequence[int],
  ) -> tuple[int, ...]:
    return _windows.along_dynamic(shape, windowed)

  def check(
    self, fields: schema.DynamicUpdate, step: schema.Execute, v: Checker
  ) -> None:
    _windows.check_dynamic(v, step, fields.dynamic_dims, step.results[0])

  def example(self) -> tuple[schema.DynamicUpdate, int]:
    return schema.DynamicUpdate([0]), 2


CODELET = DynamicUpdateCodelet()
