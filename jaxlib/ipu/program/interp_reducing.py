"""How the interpreter runs codelets that make partial results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import Cell
from jaxlib.ipu.codelets._instructions import (
  NUMPY_REGISTER,
  load,
  register_type,
  store,
)
from jaxlib.ipu.codelets._kinds import ReducingCodelet
from jaxlib.ipu.dtypes import SIZE
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.interp_cells import (
  boxes,
  first_point,
  folds,
  operands,
  targets,
)
from jaxlib.ipu.program.tile_memory import Array, Elements, TileMemory, Trap

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


class _Partial(NamedTuple):
  """What one tile computed of the results: `points` are row-major numbers
  over the kept dimensions."""

  part: tuple[int, ...]
  tile: int
  cell: Cell
  points: Elements
  values: list[Array]


def execute(
  machine: Machine, step: schema.Execute, codelet: ReducingCodelet
) -> None:
  """Partial results, merged in ascending order of part, then delivered."""
  memories = [machine.computed(a.tensor) for a in step.results]
  num_kept = codelet.num_kept(step.fields, len(step.shape))
  partials = _partials(machine, step, codelet, num_kept)
  size = math.prod(step.shape[:num_kept])
  if partials:
    totals = _merge(step, codelet, partials, size)
  else:
    registers = [NUMPY_REGISTER[register_type(m.dtype)] for m in memories]
    totals = codelet.initial(step.fields, registers, (size,))
  # An arg-reduction may be asked for its indices alone.
  totals = totals[-len(memories) :]
  ones = [1] * (len(step.shape) - num_kept)
  whole = Cell.whole([*step.shape[:num_kept], *ones])
  for m, access, total in zip(memories, step.results, totals, strict=True):
    to = targets(m, access, whole)
    new, defined = m.gather_all()
    new = new.copy()
    if codelet.updates(step.fields):
      if not defined[to].all():
        raise Trap(
          "undefined",
          f"element {to[~defined[to]][0]} is added to but was never written",
          tensor=m.number,
        )
      before = load(new[to], register_type(m.dtype))
      (total,) = codelet.combine(step.fields, [before], [total])
    new[to] = store(total, m.dtype)
    written = np.zeros(m.size, np.bool_)
    written[to] = True
    m.write_all(new, written)
    machine.wrote(m.number, written)
  machine.count(step.cost, _delivered(step, codelet, memories, partials))


def _partials(
  machine: Machine,
  step: schema.Execute,
  codelet: ReducingCodelet,
  num_kept: int,
) -> list[_Partial]:
  """What each tile computes, in ascending order of part."""
  found = (
    boxes(machine, step)
    if codelet.needs_boxes
    else folds(machine, step, num_kept)
  )
  partials = []
  for tile, cell in found:
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, local)
    points = np.zeros((), np.int64)
    for d in range(num_kept):
      points = points * step.shape[d] + cell.coordinates[d]
    part = first_point(cell)[num_kept:]
    flat = [np.asarray(v).reshape(-1) for v in values]
    partials.append(_Partial(part, tile, cell, points.reshape(-1), flat))
  return sorted(partials, key=lambda p: p.part)


def _merge(
  step: schema.Execute,
  codelet: ReducingCodelet,
  partials: list[_Partial],
  size: int,
) -> list[Array]:
  """All parts of each result as one, the first part's first."""
  totals = [np.zeros(size, v.dtype) for v in partials[0].values]
  has = np.zeros(size, np.bool_)
  for p in partials:
    values = p.values
    if has[p.points].any():
      earlier = [t[p.points] for t in totals]
      values = codelet.combine(step.fields, earlier, values)
    for total, value in zip(totals, values, strict=True):
      total[p.points] = value
    has[p.points] = True
  return totals


def _delivered(
  step: schema.Execute,
  codelet: ReducingCodelet,
  memories: list[TileMemory],
  partials: list[_Partial],
) -> int:
  """Bytes of (partial) results that reach a tile other than their own.

  Partial ones travel as wide as they are summed, whole ones as results.
  """
  split = len({p.part for p in partials}) > 1
  count = 0
  for p in partials:
    values = p.values if split else p.values[-len(memories) :]
    for i in range(len(values)):
      j = min(i, len(memories) - 1)
      m = memories[j]
      coordinates = list(p.cell.coordinates)
      still = np.zeros((1,) * len(p.cell.extents), np.int64)
      for d in range(len(p.part)):
        coordinates[-1 - d] = still
      to = targets(m, step.results[j], Cell(p.cell.shape, tuple(coordinates)))
      size = SIZE[m.dtype]
      if split:
        size = codelet.partial_bytes(step.fields, m.dtype)
      count += int(to.size * m.copies - m.has(p.tile, to).sum()) * size
  return count
