"""How the interpreter runs a compute set: tile by tile, on private copies.

A Map writes where it computes. Partial results of reductions and products,
slices that owners serve and updates that owners apply travel inside the step;
what changes tile is counted as its exchange.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxlib.ipu.codelets import CODELETS, Cell
from jaxlib.ipu.codelets import reduce as reduce_codelet
from jaxlib.ipu.codelets import scatter as scatter_codelet
from jaxlib.ipu.codelets._instructions import (
  NUMPY_REGISTER,
  load,
  register_type,
  store,
)
from jaxlib.ipu.dtypes import SIZE, DType
from jaxlib.ipu.plan.layout import Factor, Layout, refine
from jaxlib.ipu.plan.reduction import partial_bytes
from jaxlib.ipu.program import schema
from jaxlib.ipu.program.isa import ReduceKind
from jaxlib.ipu.program.tile_memory import (
  Array,
  Elements,
  TileMemory,
  Trap,
  arriving,
)

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
      _serve(machine, step)
    case schema.Scatter() | schema.DynamicUpdate():
      _update(machine, step)


# --- Cells -------------------------------------------------------------------


def cells(layout: Layout, shape: tuple[int, ...]) -> Iterator[tuple[int, Cell]]:
  """The tiles that compute something, and what."""
  if 0 in shape:
    return
  groups = refine(layout.factors, shape)
  for tile in layout.tiles().tolist():
    if groups is None:
      points = np.unravel_index(layout.owned(tile), shape)
      yield tile, Cell(shape, tuple(np.asarray(p) for p in points))
    else:
      yield tile, _box(layout, groups, shape, tile)


def _box(
  layout: Layout,
  groups: tuple[tuple[Factor, ...], ...],
  shape: tuple[int, ...],
  tile: int,
) -> Cell:
  """A tile's cell if the factors keep to dimensions: one index list each."""
  flat = tuple(f for group in groups for f in group)
  whole = Layout(flat, layout.replicas, layout.base)
  parts, _ = whole.coordinates(np.array([tile]))
  part = iter(parts)
  indices = []
  for group in groups:
    index = np.zeros(1, np.int64)
    for f in group:
      begin = int(next(part)[0]) * f.block
      inner = np.arange(begin, min(begin + f.block, f.extent))
      index = (index[:, None] * f.extent + inner).reshape(-1)
    indices.append(index)
  return Cell(shape, tuple(np.ix_(*indices)) if indices else ())


def _boxes(
  machine: Machine, step: schema.Execute
) -> Iterator[tuple[int, Cell]]:
  """The cells of a codelet that needs boxes; each cell once, on the first of
  the tiles that compute it."""
  seen = set()
  for tile, cell in cells(machine.layouts[step.partition], tuple(step.shape)):
    if not cell.is_box:
      raise Trap(
        "partition",
        f"blocks straddle dimensions of {tuple(step.shape)}, and "
        f"{type(step.fields).__name__} needs boxes",
        tile,
      )
    first = _first(cell)
    if first not in seen:
      seen.add(first)
      yield tile, cell


def _folds(
  machine: Machine, step: schema.Execute, num_kept: int
) -> Iterator[tuple[int, Cell]]:
  """The cells of a reduction: some kept points, some reduced ones.

  Either may be any run of row-major indices; the cell has two axes.
  """
  shape = tuple(step.shape)
  layout = machine.layouts[step.partition]
  sizes = (math.prod(shape[:num_kept]), math.prod(shape[num_kept:]))
  if 0 in shape:
    return
  groups = refine(layout.factors, sizes)
  if groups is None:
    raise Trap(
      "partition",
      f"blocks straddle the kept and the reduced dimensions of {shape}",
    )
  seen = set()
  for tile in layout.tiles().tolist():
    kept, reduced = _box(layout, groups, sizes, tile).coordinates
    coordinates = (
      *np.unravel_index(kept, shape[:num_kept] or (1,)),
      *np.unravel_index(reduced, shape[num_kept:] or (1,)),
    )
    if not num_kept:
      coordinates = coordinates[1:]
    if num_kept == len(shape):
      coordinates = coordinates[:-1]
    cell = Cell(shape, tuple(np.asarray(c) for c in coordinates))
    if _first(cell) not in seen:
      seen.add(_first(cell))
      yield tile, cell


def _first(cell: Cell) -> tuple[int, ...]:
  return tuple(int(c.reshape(-1)[0]) for c in cell.coordinates)


def elements(
  access: schema.Access, shape: Sequence[int], cell: Cell, whole: bool
) -> Elements:
  """The numbers of a tensor's elements at each point of a cell.

  Size 1 along dimensions in which the tensor stands still. With `whole`, the
  tensor's dimensions that the iteration space does not walk come last, whole;
  otherwise they are at index 0.
  """
  rank = len(cell.extents)
  at: list[Any] = [np.zeros((1,) * rank, np.int64) for _ in shape]
  for d, k in enumerate(access.dims):
    if k >= 0:
      at[k] = at[k] + cell.coordinates[d]
  still = [k for k in range(len(shape)) if whole and k not in access.dims]
  number = np.zeros((1,) * (rank + len(still)), np.int64)
  for k, extent in enumerate(shape):
    along = at[k].reshape(at[k].shape + (1,) * len(still))
    if k in still:
      axis = [1] * (rank + len(still))
      axis[rank + still.index(k)] = extent
      along = np.arange(extent).reshape(axis)
    number = number * extent + along
  return number


def _operands(
  machine: Machine,
  step: schema.Execute,
  tile: int,
  cell: Cell,
  accesses: Sequence[schema.Access],
) -> list[Array]:
  """A vertex's operands, from its tile's memory alone."""
  whole = isinstance(step.fields, (schema.Gather, schema.Scatter))
  operands = []
  for access in accesses:
    shape = machine.memory[access.tensor].shape
    numbers = elements(access, shape, cell, whole)
    operands.append(machine.read(tile, access.tensor, numbers))
  return operands


def _targets(m: TileMemory, access: schema.Access, cell: Cell) -> Elements:
  """The elements of a result that a cell's points give, one per point."""
  numbers = elements(access, m.shape, cell, False)
  return np.broadcast_to(numbers, cell.extents).reshape(-1)


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
    operands = _operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, operands)
    for access, m, count, value in zip(
      step.results, memories, times, values, strict=True
    ):
      to = _targets(m, access, cell)
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
  codelet = CODELETS[type(step.fields)]
  memories = [machine.computed(a.tensor) for a in step.results]
  num_kept = 3
  if isinstance(step.fields, schema.Reduce):
    num_kept = len(step.shape) - step.fields.num_reduced
    found = _folds(machine, step, num_kept)
  else:
    found = _boxes(machine, step)
  kept_shape = tuple(step.shape[:num_kept])
  kept_size = int(np.prod(kept_shape, dtype=np.int64))
  partials = []
  for tile, cell in found:
    operands = _operands(machine, step, tile, cell, step.operands)
    values = codelet.vertex(step.fields, cell, operands)
    points = np.zeros((), np.int64)
    for extent, along in zip(kept_shape, cell.coordinates, strict=False):
      points = points * extent + along
    values = [np.asarray(v).reshape(-1) for v in values]
    partials.append(
      _Partial(_first(cell)[num_kept:], tile, cell, points.reshape(-1), values)
    )
  partials.sort(key=lambda p: p.part)

  totals = (
    _nothing(machine, step, kept_size)
    if not partials
    else [np.zeros(kept_size, v.dtype) for v in partials[0].values]
  )
  has = np.zeros(kept_size, np.bool_)
  for p in partials:
    values = p.values
    if has[p.points].any():
      left = [t[p.points] for t in totals]
      values = codelet.combine(step.fields, left, values)
    for total, value in zip(totals, values, strict=True):
      total[p.points] = value
    has[p.points] = True

  # An arg-reduction may be asked for its indices alone.
  totals = totals[-len(memories) :]
  whole = Cell.whole((*kept_shape, *(1 for _ in step.shape[num_kept:])))
  for m, access, total in zip(memories, step.results, totals, strict=True):
    to = _targets(m, access, whole)
    values, _ = m.gather_all()
    values = values.copy()
    values[to] = store(total, m.dtype)
    written = np.zeros(m.size, np.bool_)
    written[to] = True
    m.write_all(values, written)
    machine.wrote(m.number, written)
  machine.count(step.cost, _delivered(step, memories, partials))


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
      to = _targets(m, step.results[j], Cell(p.cell.shape, tuple(coordinates)))
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


# --- Indices at run time -----------------------------------------------------


def _serve(machine: Machine, step: schema.Execute) -> None:
  """The owners of operand 0 serve what the indices name.

  The vertices run on the numbers of the operand's elements, which says where
  each element of the result comes from.
  """
  codelet = CODELETS[type(step.fields)]
  operand, *others = step.operands
  (access,) = step.results
  served = machine.memory[operand.tensor]
  m = machine.computed(access.tensor)
  for tile, owned in served.tiles.items():
    machine.fresh(tile, operand.tensor, owned)
  numbers = np.arange(served.size).reshape(served.shape)
  origin = np.full(m.size, -1, np.int64)
  for tile, cell in _boxes(machine, step):
    local = _operands(machine, step, tile, cell, others)
    (named,) = codelet.vertex(step.fields, cell, [numbers, *local])
    origin[_targets(m, access, cell)] = named.reshape(-1)
  written = origin >= 0
  values, defined = served.gather_all()
  if not defined[origin[written]].all():
    raise Trap(
      "undefined",
      "a slice holds elements that were never written",
      tensor=operand.tensor,
    )
  if m.size:
    m.write_all(values[origin], written)
  machine.wrote(access.tensor, written)
  machine.count(step.cost, arriving(served, m, origin) * SIZE[m.dtype])


def _update(machine: Machine, step: schema.Execute) -> None:
  """Updates travel to the owners of result 0 and are applied in order."""
  codelet = CODELETS[type(step.fields)]
  (access,) = step.results
  m = machine.computed(access.tensor)
  numbers = np.arange(m.size).reshape(m.shape)
  # (order, target, value)
  updates: list[tuple[Elements, Elements, Array]] = []
  actual = 0
  for tile, cell in _boxes(machine, step):
    operands = _operands(machine, step, tile, cell, step.operands)
    to, values = codelet.vertex(step.fields, cell, [*operands, numbers])
    to = to.reshape(-1)
    order = np.zeros((1,) * len(cell.shape), np.int64)
    for extent, along in zip(cell.shape, cell.coordinates, strict=True):
      order = order * extent + along
    fits = to >= 0
    updates.append(
      (order.reshape(-1)[fits], to[fits], values.reshape(-1)[fits])
    )
    here = m.has(tile, to[fits])
    actual += int(here.size * m.copies - here.sum()) * SIZE[m.dtype]
  if updates:
    order, to, values = map(np.concatenate, zip(*updates, strict=True))
    by_order = np.argsort(order)
    _apply(machine, step, m, to[by_order], values[by_order])
  machine.count(step.cost, actual)


def _apply(
  machine: Machine,
  step: schema.Execute,
  m: TileMemory,
  to: Elements,
  values: Array,
) -> None:
  """Applies updates to elements, those of one element in the given order."""
  fields = step.fields
  nth = _occurrence(to)
  once = not isinstance(fields, schema.Scatter) or fields.unique_indices
  if once and nth.any():
    raise Trap(
      "race",
      f"two updates of element {to[nth > 0][0]}, which are said to be unique",
      tensor=m.number,
    )
  current, defined = m.gather_all()
  new = current.copy()
  combines = (
    isinstance(fields, schema.Scatter) and fields.kind != ReduceKind.SET
  )
  if combines and not defined[to].all():
    raise Trap(
      "undefined",
      f"element {to[~defined[to]][0]} is updated but was never written",
      tensor=m.number,
    )
  register = register_type(m.dtype)
  for n in range(int(nth.max(initial=-1)) + 1):
    now = nth == n
    value = values[now]
    if combines:
      old = load(new[to[now]], register)
      value = scatter_codelet.update(fields, old, load(value, register))
      value = store(value, m.dtype)
    new[to[now]] = value
  written = np.zeros(m.size, np.bool_)
  written[to] = True
  m.write_all(new, written)
  machine.wrote(m.number, written)
  if combines:
    machine.used(m.number)


def _occurrence(values: Elements) -> Elements:
  """How often each value has come before."""
  by_value = np.argsort(values, kind="stable")
  ordered = values[by_value]
  first = np.searchsorted(ordered, ordered)
  nth = np.empty(len(values), np.int64)
  nth[by_value] = np.arange(len(values)) - first
  return nth
