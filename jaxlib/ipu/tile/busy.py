"""What each tile computes in a compute set."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from jaxlib.ipu.layout import Array, Layout, refine, sizes_of_parts
from jaxlib.ipu.plan import cost
from jaxlib.ipu.target import Target


@functools.lru_cache(maxsize=4096)
def _cells(
  partition: Layout, shape: tuple[int, ...], num_tiles: int
) -> tuple[Array, list[tuple[int, ...]]]:
  """The cell of each tile.

  Returns:
    For each tile the number of its cell's extents, -1 without a cell, and the
    distinct extents: for each dimension of the iteration space, or the number
    of elements where blocks straddle dimensions.
  """
  tiles = np.arange(num_tiles)
  groups = refine(partition.factors, shape)
  if groups is None:
    held = partition.elements(tiles)
    distinct, numbers = np.unique(held, return_inverse=True)
    kept = [int(n) for n in distinct]
    shift = int(kept[0] == 0)
    return numbers - shift, [(n,) for n in kept[shift:]]
  flat = tuple(f for group in groups for f in group)
  layout = Layout(flat, partition.replicas, partition.base)
  parts, active = layout.coordinates(tiles)
  # Of each factor a tile has a whole block, or the last one, which is short.
  code = np.zeros(num_tiles, np.int64)
  sizes = [sizes_of_parts(f, p) for f, p in zip(flat, parts, strict=True)]
  for bit, (f, size) in enumerate(zip(flat, sizes, strict=True)):
    code |= (size < min(f.block, f.extent)).astype(np.int64) << bit
  code[~active] = -1
  distinct, first, numbers = np.unique(
    code, return_index=True, return_inverse=True
  )
  shift = int(distinct[0] < 0)
  extents = []
  for tile in first[shift:]:
    own = iter([int(size[tile]) for size in sizes])
    extents.append(
      tuple(math.prod(next(own) for _ in group) for group in groups)
    )
  return numbers - shift, extents


def cycles_by_tile(
  target: Target,
  partition: Layout,
  shape: tuple[int, ...],
  compute: float,
  cycles: Callable[[tuple[int, ...]], float],
) -> Array:
  """Cycles of each tile in a compute set: of its vertices, by the extents of
  its cell. What comes with them (copies in another order, the stages that
  combine partial results) is charged to all tiles that take part, as on the
  slowest one.

  Args:
    target: the machine.
    partition: the mapping of the iteration space.
    shape: the iteration space.
    compute: cycles of the slowest tile.
    cycles: of the vertices for a cell.
  """
  where = partition, shape, target.num_tiles
  numbers, extents = _cells(*where)
  largest = _largest_cell(*where[:2])
  if all(cell == largest for cell in extents):
    return _level(*where, compute)
  rest = compute - cycles(largest)
  each = [cycles(cell) + rest for cell in extents]
  return np.array([*each, 0.0])[numbers]  # -1: no cell


_largest_cell = functools.lru_cache(maxsize=4096)(cost.largest_cell)


@functools.lru_cache(maxsize=4096)
def _level(
  partition: Layout, shape: tuple[int, ...], num_tiles: int, compute: float
) -> Array:
  """The same cycles on each tile that has a cell."""
  numbers, _ = _cells(partition, shape, num_tiles)
  return np.where(numbers >= 0, compute, 0.0)
