"""Which part of a compute set each tile computes, and what it reads for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxlib.ipu.check.machine import Machine
from jaxlib.ipu.check.tile_memory import Array, Elements, TileMemory, Trap
from jaxlib.ipu.codelets import CODELETS, Cell
from jaxlib.ipu.layout import Factor, Layout, refine
from jaxlib.ipu.program import schema


def cells(layout: Layout, shape: tuple[int, ...]) -> Iterator[tuple[int, Cell]]:
  """The tiles that compute something, with their cells."""
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
  """A tile's cell if blocks do not straddle dimensions: one index list each."""
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


def boxes(machine: Machine, step: schema.Execute) -> Iterator[tuple[int, Cell]]:
  """The cells of a codelet that needs boxes; each cell once, on the first tile
  that computes it."""
  seen = set()
  for tile, cell in all_boxes(machine, step):
    first = first_point(cell)
    if first not in seen:
      seen.add(first)
      yield tile, cell


def all_boxes(
  machine: Machine, step: schema.Execute
) -> Iterator[tuple[int, Cell]]:
  """The cells of a codelet that needs boxes, each on all of its tiles."""
  for tile, cell in cells(machine.layouts[step.partition], tuple(step.shape)):
    if not cell.is_box:
      raise Trap(
        "partition",
        f"blocks straddle dimensions of {tuple(step.shape)}, and "
        f"{type(step.fields).__name__} needs boxes",
        tile,
      )
    yield tile, cell


def folds(
  machine: Machine, step: schema.Execute, num_kept: int
) -> Iterator[tuple[int, Cell]]:
  """The cells of a reduction: some parallel points, some reduced ones.

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
    if first_point(cell) not in seen:
      seen.add(first_point(cell))
      yield tile, cell


def first_point(cell: Cell) -> tuple[int, ...]:
  """The lowest index of a cell along each dimension."""
  return tuple(int(c.reshape(-1)[0]) for c in cell.coordinates)


def elements(
  access: schema.Access, shape: Sequence[int], cell: Cell, whole: bool
) -> Elements:
  """The numbers of a tensor's elements at each point of a cell.

  Size 1 along dimensions along which the tensor is broadcast. With `whole`, the
  tensor's dimensions that are not in the iteration space come last, whole;
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


def operands(
  machine: Machine,
  step: schema.Execute,
  tile: int,
  cell: Cell,
  accesses: Sequence[schema.Access],
) -> list[Array]:
  """A vertex's operands, read from its tile's memory."""
  whole = CODELETS[type(step.fields)].reads_whole
  operands = []
  for access in accesses:
    shape = machine.memory[access.tensor].shape
    numbers = elements(access, shape, cell, whole)
    operands.append(machine.read(tile, access.tensor, numbers))
  return operands


def targets(
  m: TileMemory, access: schema.Access, cell: Cell, whole: bool = False
) -> Elements:
  """The elements of a result that a cell's points write: one per point, or with
  `whole` all that `elements` gives for it."""
  numbers = elements(access, m.shape, cell, whole)
  shape = (*cell.extents, *numbers.shape[len(cell.extents) :])
  return np.broadcast_to(numbers, shape).reshape(-1)
