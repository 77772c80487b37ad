"""How the interpreter runs a compute set: tile by tile, on private copies.

A Map writes where it computes. Partial results of reductions and products,
slices that owners serve and updates that owners apply travel inside the step;
what changes tile is counted as its exchange.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import CODELETS, Cell
from jaxlib.ipu.codelets import reduce as reduce_codelet
from jaxlib.ipu.codelets._instructions import (
  NUMPY_REGISTER,
  load,
  register_type,
  store,
)
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.plan.reduction import partial_bytes
from jaxlib.ipu.program import interp_indexed, schema
from jaxlib.ipu.program.interp_cells import (
  boxes,
  cells,
  first_point,
  folds,
  operands,
  targets,
)
from jaxlib.ipu.program.tile_memory import Array, Elements, TileMemory, Trap

if TYPE_CHECKING:
  from jaxlib.ipu.program.interp import Machine


def execute(machine: Machine, step: schema.Execute) -> None:
  """Runs a compute set on the machine's memories."""
  match step.fields:
    case schema.Map():
      _map(machine, step)
    case schema.Reduce() | schema.Dot():
      _fold(machine, step)
    case schema.Gather() | schema.DynamicSlice():
      interp_indexed.serve(machine, step)
    case schema.Scatter() | schema.DynamicUpdate():
      interp_indexed.update(machine, step)


# --- Map ---------------------------------------------------------------------


def _map(machine: Machine, step: schema.Execute) -> None:
  codelet = CODELETS[type(step.fields)]
  memories = [machine.computed(a.tensor) for a in step.results]
  times = [
    {tile: np.zeros(len(owned), np.int64) for tile, owned in m.tiles.items()}
    for m in memories
  ]
  pending: list[tuple[TileMemory, int, Elements, Array]] = []
  layout = machine.layouts[step.partition]
  for tile, cell in cells(layout, tuple(step.shape)):
    local = operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, local)
    for access, m, count, value in zip(
      step.results, memories, times, values, strict=True
    ):
      to = targets(m, access, cell)
      np.add.at(count.get(tile, np.zeros(0)), m.local(tile, to), 1)
      pending.append((m, tile, to, store(value, m.dtype).reshape(-1)))
  for m, tile, to, value in pending:
    m.write(tile, to, value)
  for m, count in zip(memories, times, strict=True):
    machine.wrote(m.number, _written(m, count))
  machine.count(step.cost, 0)


def _written(m: TileMemory, counts: dict[int, Elements]) -> Any:
  """Which elements were written: none twice, and all copies or none."""
  total = np.zeros(m.size, np.int64)
  for tile, count in counts.items():
    if (count > 1).any():
      element = m.tiles[tile][count > 1][0]
      raise Trap(
        "race", f"two vertices write element {element}", tile, m.number
      )
    total[m.tiles[tile]] += count
  partly = (total > 0) & (total < m.copies)
  if partly.any():
    raise Trap(
      "replica",
      f"element {int(np.argmax(partly))} is on {m.copies} tiles and written "
      "on fewer",
      tensor=m.number,
    )
  return total > 0


# --- Reductions and products -------------------------------------------------


class _Partial(NamedTuple):
  """What one tile computed of the results: `points` are row-major numbers
  over the kept dimensions."""

  part: tuple[int, ...]
  tile: int
  cell: Cell
  points: Elements
  values: list[Array]


def _fold(machine: Machine, step: schema.Execute) -> None:
  """Partial results, merged in ascending order of part, then delivered."""
  memories = [machine.computed(a.tensor) for a in step.results]
  num_kept = 3
  if isinstance(step.fields, schema.Reduce):
    num_kept = len(step.shape) - step.fields.num_reduced
  partials = _partials(machine, step, num_kept)
  size = math.prod(step.shape[:num_kept])
  if partials:
    totals = _merge(step, partials, size)
  else:
    totals = _nothing(machine, step, size)
  # An arg-reduction may be asked for its indices alone.
  totals = totals[-len(memories) :]
  ones = [1] * (len(step.shape) - num_kept)
  whole = Cell.whole([*step.shape[:num_kept], *ones])
  for m, access, total in zip(memories, step.results, totals, strict=True):
    to = targets(m, access, whole)
    new, defined = m.gather_all()
    new = new.copy()
    if schema.updates(step.fields):
      if not defined[to].all():
        raise Trap(
          "undefined",
          f"element {to[~defined[to]][0]} is added to but was never written",
          tensor=m.number,
        )
      before = load(new[to], register_type(m.dtype))
      (total,) = CODELETS[type(step.fields)].combine(
        step.fields, [before], [total]
      )
    new[to] = store(total, m.dtype)
    written = np.zeros(m.size, np.bool_)
    written[to] = True
    m.write_all(new, written)
    machine.wrote(m.number, written)
  machine.count(step.cost, _delivered(step, memories, partials))


def _partials(
  machine: Machine, step: schema.Execute, num_kept: int
) -> list[_Partial]:
  """What each tile computes, in ascending order of part."""
  codelet = CODELETS[type(step.fields)]
  if isinstance(step.fields, schema.Reduce):
    found = folds(machine, step, num_kept)
  else:
    found = boxes(machine, step)
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
  step: schema.Execute, partials: list[_Partial], size: int
) -> list[Array]:
  """All parts of each result as one, the first part's first."""
  codelet = CODELETS[type(step.fields)]
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
  step: schema.Execute, memories: list[TileMemory], partials: list[_Partial]
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
      size = _partial_bytes(step, m) if split else SIZE[m.dtype]
      count += int(to.size * m.copies - m.has(p.tile, to).sum()) * size
  return count


def _partial_bytes(step: schema.Execute, m: TileMemory) -> int:
  """Bytes of a partial result: narrow floats are summed as f32."""
  if isinstance(step.fields, schema.Dot):
    return SIZE[DType(step.fields.accumulate_dtype)]
  return partial_bytes(m.dtype)


def _nothing(machine: Machine, step: schema.Execute, size: int) -> list[Array]:
  """Reductions over no elements, products of none."""
  if isinstance(step.fields, schema.Dot):
    register = register_type(DType(step.fields.accumulate_dtype))
    return [np.zeros(size, NUMPY_REGISTER[register])]
  assert isinstance(step.fields, schema.Reduce)
  registers = [
    NUMPY_REGISTER[register_type(machine.memory[a.tensor].dtype)]
    for a in step.results
  ]
  return reduce_codelet.initial(step.fields, registers, (size,))
