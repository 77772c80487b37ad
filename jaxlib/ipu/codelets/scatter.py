"""Scatter: updates of windows at run-time indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.codelets import _checks, _windows, gather, reduce
from jaxlib.ipu.codelets._codelet import (
  Array,
  Cell,
  Extents,
  volume,
)
from jaxlib.ipu.codelets._cycles import (
  Cycles,
  all_derived,
  ceil_div,
  choose,
  most,
  multi_vertex,
  up,
)
from jaxlib.ipu.codelets._hints import Hints
from jaxlib.ipu.codelets._inner_loops import LOAD
from jaxlib.ipu.codelets._kinds import UpdatingCodelet
from jaxlib.ipu.codelets._monoids import MONOIDS, apply
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.kernel.evaluate import evaluate
from jaxlib.ipu.kernel.instruction import Code
from jaxlib.ipu.kernel.isa import ReduceKind
from jaxlib.ipu.program import schema
from jaxlib.ipu.target import Target

# popops/PerformanceEstimation.cpp [S]: MultiUpdate starts with 29 and copies
# like MultiSlice. MultiUpdateOp starts with 3 + 29, takes 11 per update
# served, its first atom included, 3 per further atom and 5 per update skipped;
# f16 one cycle more at the start and per update served. Sums multiply by a
# scale, too: 6 cycles at the start (f16 4), and one per update served of f16.
# An atom is the smallest unit that can be stored, 32 bits.
_UPDATE_START = 29
_OP_START, _OP_SERVED, _OP_ATOM, _OP_SKIPPED = 3 + 29, 11, 3, 5
_SCALE_START, _SCALE_START_F16 = 6, 4
# Marks of whether a value was written, or which update wrote it.
_FLAG, _NUMBER = DType.U8, DType.U32
# Combinations that the vertex has in assembly.
_IN_ASSEMBLY = (ReduceKind.SUM, ReduceKind.PRODUCT, ReduceKind.MAX)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScatterHints(Hints):
  """How the result is distributed. Arrays are of many candidates.

  Attributes:
    parts: the number of tiles that share it along its indexed dimensions.
    entries: a tile's places along these; by default one for each worker.
    team: the number of tiles that share an element's updates.
  """

  parts: int | Array = 1
  entries: int | Array | None = None
  team: int | Array = 1


_NO_HINTS = ScatterHints()


class ScatterCodelet(UpdatingCodelet):
  """Cycles: MultiUpdate for SET, MultiUpdateOp for combining kinds.

  A worker has a share of a tile's places along the indexed dimensions and scans
  all indices (codelets/MultiSliceUpdateCommon.cpp) [S], of which an equal share
  are its own on average [D]. Floats are added, multiplied or compared an atom
  at a time; other kinds and types take the element-wise loop's cycles per
  element [D].

  In a team of tiles that share an element's updates each stores next to an
  overwritten value which update wrote it, so that the last one wins; if no
  element is updated twice, it stores only that one did [D].
  """

  record = schema.Scatter
  hints = ScatterHints
  reads_whole = True

  def cycles(
    self,
    target: Target,
    fields: schema.Scatter,
    operand_dtypes: Sequence[DType],
    result_dtypes: Sequence[DType],
    cell: Extents,
    hints: ScatterHints = _NO_HINTS,
  ) -> Cycles:
    batch = volume(cell[: fields.num_batch_dims])
    window = volume(cell[fields.num_batch_dims :])
    dtype = result_dtypes[0]
    entries = target.num_workers if hints.entries is None else hints.entries
    entries = most(entries, 1.0)
    places = up(entries / target.num_workers) / entries
    served = up(batch * places / hints.parts)
    skipped = batch - served
    kind = ReduceKind(fields.kind)
    if kind == ReduceKind.SET:
      vector, cycles = gather.COPY[SIZE[dtype]]
      start = _UPDATE_START
      each = gather.SERVED + cycles * ceil_div(window, vector)
      marked, cycles = gather.COPY[SIZE[self._mark(fields)]]
      marks = all_derived(cycles * ceil_div(window, marked))
      each = each + choose(hints.team > 1, marks, 0.0)
      skip = gather.SKIPPED
    else:
      start, skip = _OP_START, _OP_SKIPPED
      each = _OP_SERVED + self._combining(fields, kind, dtype, window)
      f16, scaled = dtype is DType.F16, kind is ReduceKind.SUM
      if scaled:
        start += _SCALE_START_F16 if f16 else _SCALE_START
      if f16:
        start += 1
        each += 1 + scaled
    return multi_vertex(target, start + skipped * skip + each * served)

  def _combining(
    self, fields: schema.Scatter, kind: ReduceKind, dtype: DType, window: Any
  ) -> Cycles:
    """A worker's cycles to combine an update of `window` elements."""
    if dtype in (DType.F32, DType.F16) and kind in _IN_ASSEMBLY:
      atoms = ceil_div(window, 2 if dtype is DType.F16 else 1)
      return Cycles(_OP_ATOM * most(atoms - 1, 0))
    each = _OP_ATOM + reduce.per_element(
      kind, [dtype], fields.combine, fields.combine_outputs
    )
    return all_derived(each * window)

  def flops(self, fields: schema.Scatter, shape: Sequence[int]) -> float:
    return 0.0 if fields.kind == ReduceKind.SET else volume(shape)

  def vertex(
    self, fields: schema.Scatter, cell: Cell, operands: Sequence[Array]
  ) -> list[Array]:
    """Operands: indices, updates, and the numbers of the result's elements.

    Returns for each update the number of its element, -1 if its window does not
    fit, and its value; the owner applies them in order.
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
    """Narrow floats are summed as f32; overwritten values have a mark."""
    if fields.kind == ReduceKind.SET:
      return SIZE[dtype] + SIZE[self._mark(fields)]
    return reduce.partial_bytes(dtype) if fields.kind in MONOIDS else 0

  def cleared_bytes(self, fields: schema.Scatter, dtype: DType) -> int:
    """Sums begin with zeros; if values have numbers, only these are read."""
    if fields.kind == ReduceKind.SET and not fields.unique_indices:
      return SIZE[_NUMBER]
    return self.partial_bytes(fields, dtype)

  def _mark(self, fields: schema.Scatter) -> DType:
    """The type of the mark that a team's tiles store with each value."""
    return _FLAG if fields.unique_indices else _NUMBER

  def combining(self, fields: schema.Scatter, dtype: DType) -> Cycles:
    if fields.kind == ReduceKind.SET:
      if fields.unique_indices:
        # All but one are cleared: the bitwise or is that one.
        word = reduce.per_element(ReduceKind.OR, [DType.U32], Code(), ())
        return all_derived(word * (self.partial_bytes(fields, dtype) / 4))
      # Finds the largest of some integers, and the value next to it.
      largest = reduce.per_element(ReduceKind.ARGMAX, [_NUMBER], Code(), ())
      return all_derived(largest + LOAD[dtype])
    wide = DType.F32 if dtype in (DType.F16, DType.BF16) else dtype
    return reduce.per_element(
      ReduceKind(fields.kind), [wide], fields.combine, fields.combine_outputs
    )

  def combine(self, fields: schema.Scatter, old: Array, new: Array) -> Array:
    kind = ReduceKind(fields.kind)
    with np.errstate(all="ignore"):
      if kind == ReduceKind.GENERAL:
        return evaluate(fields.combine, fields.combine_outputs, [old, new])[0]
      return apply(kind, old, new)

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
      schema.Scatter(1, [0], [1, 8], [-1, -1], [-1, 0], kind, 0, Code(), [], 0),
      2,
    )


CODELET = ScatterCodelet()
