"""DynamicUpdate: overwrites a slice whose start is known at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _windows
from jaxlib.ipu.codelets._codelet import Array, Cell
from jaxlib.ipu.codelets.dynamic_slice import DynamicSliceCodelet
from jaxlib.ipu.program import schema


class DynamicUpdateCodelet(DynamicSliceCodelet):
  """Cycles: DynamicUpdateSlice1D, which costs what the slice does."""

  record = schema.DynamicUpdate

  def vertex(
    self, fields: Any, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operands: the update, the starts, the numbers of the result's elements.

    Gives for each element of the update where it goes, and its value.
    """
    update, *start, numbers = operands
    at = _windows.moved(fields.dynamic_dims, start, cell, numbers.shape)
    return [numbers[at], np.broadcast_to(update, cell.extents)]


CODELET = DynamicUpdateCodelet()
