"""The default layout of tensors, and boxes for stencils."""

from __future__ import annotations

import functools
import math

import numpy as np

from jaxlib.ipu.layout import Layout, grid, linear
from jaxlib.ipu.moves.segments import WORD
from jaxlib.ipu.target import Target

# Poplar gives no tile less than 128 bytes of a tensor (PopLibs,
# TileMapping.hpp) [S], so small tensors occupy few tiles.
SMALLEST_BYTES = 128
# Cells may be this much larger than those of an even distribution [G].
COARSER = 1.25


def default_layout(
  target: Target,
  shape: tuple[int, ...],
  item_bytes: int,
  smallest: int = SMALLEST_BYTES,
) -> Layout:
  """Splits rows over tiles, then columns, at least 128 bytes a tile.

  Blocks never straddle dimensions, so operands broadcast along any of them
  still project onto the partition.
  """
  size = math.prod(shape)
  grain = max(1, target.data_path_bytes // item_bytes)
  tiles = min(target.num_tiles, max(1, -(-size * item_bytes // smallest)))
  if len(shape) <= 1 or size == 0:
    return linear(size, tiles, grain)
  worth = COARSER if tiles < target.num_tiles else 1
  return _rows(shape, tiles, grain, max(WORD // item_bytes, 1), worth)


# Box-shaped blocks may be this much larger than the smallest possible.
_LARGER = 1.1


@functools.lru_cache(maxsize=4096)
def blocks(target: Target, shape: tuple[int, ...]) -> Layout | None:
  """A mapping for stencils: the last two dimensions are cut into boxes of small
  surface. None for arrays of rank below 2 or without elements."""
  if len(shape) < 2 or 0 in shape:
    return None
  rows, columns = shape[-2:]
  outer, tiles = math.prod(shape[:-2]), target.num_tiles
  most = tiles // min(outer, tiles)
  down = np.arange(1, min(most, rows) + 1)
  across = np.minimum(most // down, columns)
  high, wide = -(-rows // down), -(-columns // across)
  cells = high * wide
  surface = np.where(cells <= _LARGER * cells.min(), high + wide, np.inf)
  best = int(surface.argmin())
  front = [1] * (len(shape) - 2)
  if front:
    front = list(_parts(shape[:-2], tiles // most, 1, 1)[1])
  return grid(shape, [*front, int(down[best]), int(across[best])])


# Blocks of a dimension may be up to this many times the smallest possible, if
# more of the tiles can be used in this way.
_COARSEST = 8


@functools.lru_cache(maxsize=4096)
def _rows(
  shape: tuple[int, ...], tiles: int, grain: int, word: int, worth: float
) -> Layout:
  """A grid that splits outer dimensions first.

  A dimension with more than an eighth as many indices as there are tiles may
  get blocks of several indices, if that leaves fewer tiles idle: cells have to
  get smaller by a factor of `worth`. This keeps whole rows of small arrays
  together, which most consumers read. Blocks of the last dimension are whole
  words.
  """
  grains = [1] * (len(shape) - 1) + [word]
  return grid(shape, _parts(shape, tiles, grain, worth)[1], grains=grains)


def _parts(
  shape: tuple[int, ...], tiles: int, grain: int, worth: float
) -> tuple[int, tuple[int, ...]]:
  """The elements of the largest cell, and the parts along each dimension."""
  if not shape:
    return 1, ()
  extent, rest = shape[0], shape[1:]
  unit = 1 if rest else grain
  smallest = -(-extent // min(tiles, extent))
  best: tuple[int, tuple[int, ...]] | None = None
  for times in range(1, _COARSEST + 1):
    block = min(-(-smallest * times // unit) * unit, -(-extent // unit) * unit)
    count = -(-extent // block)
    cell, inner = _parts(rest, tiles // count, grain, worth)
    cell *= min(block, extent)
    if best is None or cell * worth < best[0]:
      best = cell, (count, *inner)
    if count * _COARSEST < tiles or block >= extent or not rest:
      break
  assert best is not None
  return best
