"""Scatter: updates to windows whose places are given by indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _checks, _windows, gather, reduce
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Cycles,
  Extents,
  ceil_div,
  volume,
)
from jaxlib.ipu.codelets._instructions import evaluate
from jaxlib.ipu.codelets._kinds import UpdatingCodelet
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import ReduceKind
from jaxlib.ipu.target import Target

# popops/PerformanceEstimation.cpp [S]: MultiUpdate starts with 29 and copies
# as MultiSlice does. MultiUpdateOp starts with 3 + 29 (f16 30), takes 11
# (f16 12) and 3 per further atom of an update served, 5 per one skipped.
_UPDATE_START = 29
_OP_START, _OP_SERVED, _OP_ATOM, _OP_SKIPPED = 3 + 29, 11, 3, 5


class ScatterCodelet(UpdatingCodelet):
  """Cycles: MultiUpdate for SET, MultiUpdateOp for what combines.

  `parts` as for a gather; `entries` are a tile's places along the indexed
  dimensions. A worker has some of these places and scans all indices. Sums
  of floats take an atom (32 bits of f32, 64 of f16) at a time; other kinds and
  types the element-wise loop's cycles per element [D].
  """

  record = schema.Scatter
  reads_whole = True

  def cycles(
    self,
    target: Target,
    fields: schema.Scatter,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    **extra: Any,
  ) -> Cycles:
    batch = volume(cell[: fields.num_batch_dims])
    window = volume(cell[fields.num_batch_dims :])
    dtype = result_dtypes[0]
    entries = np.maximum(extra.get("entries", target.num_workers), 1.0)
    places = np.ceil(entries / target.num_workers) / entries
    served = np.ceil(batch * places / extra.get("parts", 1))
    skipped = batch - served
    kind = ReduceKind(fields.kind)
    if kind == ReduceKind.SET:
      vector, cycles = gather.COPY[SIZE[dtype]]
      start = _UPDATE_START
      each = gather.SERVED + ceil_div(window, vector) * cycles
      skip = gather.SKIPPED
    else:
      start, skip = _OP_START, _OP_SKIPPED
      each = _OP_SERVED + window * self._per_element(fields, kind, dtype)
    worker = start + served * each + skipped * skip
    total = (
      target.launch_cycles + gather.SUPERVISOR + target.num_workers * worker
    )
    return total if np.ndim(total) else float(total)

  def _per_element(
    self, fields: schema.Scatter, kind: ReduceKind, dtype: DType
  ) -> float:
    if dtype in (DType.F32, DType.F16):
      if kind in (ReduceKind.SUM, ReduceKind.PRODUCT, ReduceKind.MAX):
        return _OP_ATOM / (2 if dtype == DType.F16 else 1)
    return _OP_ATOM + reduce.per_element(
      kind, [dtype], fields.combine, fields.combine_outputs
    )

  def flops(self, fields: schema.Scatter, shape: Sequence[int]) -> float:
    return 0.0 if fields.kind == ReduceKind.SET else volume(shape)

  def shares(
    self,
    fields: schema.Scatter,
    operand_dtypes: tuple[DType, ...],
    result_dtypes: tuple[DType, ...],
  ) -> tuple[float, float]:
    kind = ReduceKind(fields.kind)
    floats = result_dtypes[0] in (DType.F32, DType.F16)
    return float(kind != ReduceKind.SET and not floats), 0.0

  def vertex(
    self, fields: schema.Scatter, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operands: indices, updates, and the numbers of the result's elements.

    Gives for each update the number of the element it goes to, -1 if its
    window does not fit, and its value; the owner applies them in order.
    """
    cell.require_box("a scatter")
    indices, updates, numbers = operands
    start = _windows.starts(indices, numbers.ndim, fields.start_index_map)
    fits: Any = np.ones((1,) * len(cell.shape), np.bool_)
    clamped: list[Array | None] = []
    for d, s in enumerate(start):
      limit = numbers.shape[d] - fields.window_sizes[d]
      if s is None:
        clamped.append(None)
        continue
      fits = fits & _windows.in_range(s, limit)
      clamped.append(_windows.clamp_start(s, limit))
    at = _windows.positions(fields, clamped, cell)
    goes_to = np.where(fits, numbers[tuple(at)], -1)
    return [
      np.broadcast_to(goes_to, cell.extents),
      np.broadcast_to(updates, cell.extents),
    ]

  def is_unique(self, fields: schema.Scatter) -> bool:
    return bool(fields.unique_indices)

  def combines(self, fields: schema.Scatter) -> bool:
    return fields.kind != ReduceKind.SET

  def partial_bytes(self, fields: schema.Scatter, dtype: DType) -> int:
    """Narrow floats are summed as f32; what overwrites says where it does."""
    if fields.kind == ReduceKind.SET:
      return SIZE[dtype] + 1 if fields.unique_indices else 0
    return reduce.partial_bytes(dtype) if fields.kind in reduce.MONOIDS else 0

  def combine(self, fields: schema.Scatter, old: Array, new: Array) -> Array:
    kind = ReduceKind(fields.kind)
    with np.errstate(all="ignore"):
      if kind == ReduceKind.GENERAL:
        return evaluate(fields.combine, fields.combine_outputs, [old, new])[0]
      return reduce.apply(kind, old, new)

  def along(
    self,
    fields: schema.Scatter,
    shape: Sequence[int],
    windowed: Sequence[int],
  ) -> tuple[int, ...]:
    return _windows.along(fields, shape, windowed)

  def check(
    self, fields: schema.Scatter, step: schema.Execute, v: _checks.Checker
  ) -> None:
    v.require(
      (len(step.operands), len(step.results)) == (2, 1),
      "a scatter has two operands",
    )
    (result,) = step.results
    indices = step.operands[0]
    _windows.check(v, step, fields, result, indices, fields.window_sizes)
    _checks.combiner(v, fields.kind, fields.combine, fields.combine_outputs, 1)

  def example(self) -> tuple[schema.Scatter, int]:
    kind = ReduceKind.SUM
    return (
      schema.Scatter(1, [0], [1, 8], [-1, -1], [-1, 0], kind, 0, b"", [], 0),
      2,
    )


CODELET = ScatterCodelet()
