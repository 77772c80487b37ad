"""Gather: slices at run-time indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _windows
from jaxlib.ipu.codelets._checks import Checker
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  Cycles,
  ceil_div,
  choose,
  derived,
  multi_vertex,
)
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._kinds import SlicingCodelet
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# MultiSlice (popops/PerformanceEstimation.cpp) [S]: a worker's start, per
# index served, per index that another tile serves, and the copy of a slice
# as (elements, cycles) by element size. 8 bytes: one per load [D].
START, SERVED, SKIPPED = 30, 19, 8
COPY = {
  1: (4, Cycles(3)), 2: (2, Cycles(2)), 4: (2, Cycles(2)), 8: (1, derived(2))
}  # fmt: skip


def slice_cycles(
  target: Target, dtype: DType, lookups: Any, window: Any, parts: Any
) -> Cycles:
  """MultiSlice with `lookups` indices of slices of `window` elements, on one
  of `parts` tiles that share the operand. Numbers or arrays."""
  vector, cycles = COPY[SIZE[dtype]]
  vectors = ceil_div(window, vector)
  alone = ceil_div(vectors, target.num_workers)
  vectors = choose(lookups == 1, alone, vectors)
  scanned = ceil_div(lookups, target.num_workers)
  served = ceil_div(scanned * 1.0, parts)
  worker = START + (scanned - served) * SKIPPED
  worker = worker + (SERVED + cycles * vectors) * served
  return multi_vertex(target, worker)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatherHints(Hints):
  """How the operand is distributed.

  Attributes:
    parts: the number of tiles that share it along its indexed dimensions.
  """

  parts: int = 1


_NO_HINTS = GatherHints()


class GatherCodelet(SlicingCodelet):
  """Cycles: MultiSlice, the indices shared by the workers, or the one slice.

  Each of the tiles that share the operand scans all indices and serves an equal
  share, as PopLibs' planner assumes.
  """

  record = schema.Gather
  hints = GatherHints
  reads_whole = True

  def cycles(
    self,
    target: Target,
    fields: schema.Gather,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: GatherHints = _NO_HINTS,
  ) -> Cycles:
    batch = volume(cell[: fields.num_batch_dims])
    window = volume(cell[fields.num_batch_dims :])
    return slice_cycles(target, operand_dtypes[0], batch, window, hints.parts)

  def vertex(
    self, fields: schema.Gather, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operand 0 is all of the tensor, as served by its owners."""
    cell.require_box("a gather")
    operand, indices = operands
    start = _windows.starts(indices, operand.ndim, fields.start_index_map)
    clamped = [
      None
      if s is None
      else _windows.clamp_start(s, operand.shape[d] - fields.slice_sizes[d])
      for d, s in enumerate(start)
    ]
    at = _windows.positions(fields, clamped, cell)
    return [np.broadcast_to(operand[tuple(at)], cell.extents)]

  def along(
    self,
    fields: schema.Gather,
    shape: Sequence[int],
    windowed: Sequence[int],
  ) -> tuple[int, ...]:
    return _windows.along(fields, shape, windowed)

  def check(
    self, fields: schema.Gather, step: schema.Execute, v: Checker
  ) -> None:
    v.require(
      (len(step.operands), len(step.results)) == (2, 1),
      "a gather has two operands",
    )
    operand, indices = step.operands
    _windows.check(v, step, fields, operand, indices, fields.slice_sizes)

  def example(self) -> tuple[schema.Gather, int]:
    return schema.Gather(1, [0], [1, 8], [-1, -1], [-1, 0]), 2


CODELET = GatherCodelet()
