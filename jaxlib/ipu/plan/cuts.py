"""Into how many parts the dimensions of a matrix product may be cut."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Blocks that fill the matrix unit: whole groups of output channels (rows or
# columns) and of input channels (terms). poplin's planner splits these
# dimensions only in such grains (ConvPlan.cpp, `inChanGrainSize`) [S].
_OUTPUTS = (16, 32, 48, 64, 96, 128)
_INPUTS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)
# Beyond this number of splits, those that cut terms are only considered if they
# use at least this share of the tiles. [G]
_MANY_SPLITS, _LEAST_USED = 256, 0.7


@functools.lru_cache(maxsize=64)
def _tried(num_tiles: int) -> tuple[int, ...]:
  """Numbers of parts to try for a dimension: divisors of the machine's number
  of tiles, powers of two, and a few more small numbers; ascending."""
  numbers = np.arange(1, num_tiles + 1)
  divisors = numbers[num_tiles % numbers == 0].tolist()
  powers = (1 << i for i in range(num_tiles.bit_length()))
  found = sorted({*divisors, *powers, 3, 6, 12})
  return tuple(n for n in found if n <= num_tiles)


@functools.lru_cache(maxsize=1024)
def _parts(
  extent: int,
  most: int,
  num_tiles: int,
  blocks: tuple[int, ...] = (),
  grain: int = 1,
) -> tuple[int, ...]:
  """Numbers of parts to try for a dimension, at most `most`, each that of equal
  blocks of some size, and those that result from the sizes `blocks`; ascending.
  All block sizes are rounded up to multiples of `grain`."""
  most = min(extent, most)
  sizes = {-(-extent // n) for n in _tried(num_tiles) if n < most}
  sizes.add(-(-extent // most))
  sizes.update(size for size in blocks if size < extent)
  parts = {-(-extent // (-(-size // grain) * grain)) for size in sizes}
  return tuple(sorted(parts))


@functools.lru_cache(maxsize=4096)
def distribute(
  parts: int, extents: tuple[int, ...], num_tiles: int
) -> tuple[int, ...]:
  """Cuts several dimensions into at most `parts` parts with the smallest
  blocks; ties go to the split that cuts outer dimensions. The numbers of parts
  that are tried depend on `num_tiles`, the machine's number of tiles."""
  if len(extents) <= 1 or parts <= 1:
    return tuple(min(parts, max(e, 1)) for e in extents)
  best, chosen = math.inf, (1,) * len(extents)
  for first in reversed(_parts(extents[0], parts, num_tiles)):
    rest = distribute(parts // first, extents[1:], num_tiles)
    block = math.prod(
      -(-e // p) for e, p in zip(extents, (first, *rest), strict=True)
    )
    if block < best:
      best, chosen = block, (first, *rest)
  return chosen


@functools.lru_cache(maxsize=1024)
def candidates(
  tiles: int, b: int, m: int, n: int, k: int, grains: tuple[int, int, int]
) -> Ints:
  """Splits along (b, m, n, k) to consider, one per column: a few numbers of
  parts for each dimension, and, where one of (m, n, k) is whole, as many parts
  of it as tiles allow."""
  parts = np.ones((1, 1), np.int64)  # the first row: tiles in use
  for extent, blocks, grain in (
    (b, (), 1),
    (m, _OUTPUTS, grains[0]),
    (n, _OUTPUTS, grains[1]),
    (k, _INPUTS, grains[2]),
  ):
    more = np.array(_parts(extent, tiles, tiles, blocks, grain))
    used = np.multiply.outer(parts[0], more)
    one, other = np.nonzero(used <= tiles)
    parts = np.stack([used[one, other], *parts[1:, one], more[other]])
  filled = []
  for d, extent, grain in zip((2, 3, 4), (m, n, k), grains):
    found = parts[:, parts[d] == 1]
    most = np.minimum(tiles // found[0], extent)
    blocks = -(-extent // most)
    found[d] = -(-extent // (-(-blocks // grain) * grain))
    found[0] *= found[d]
    filled.append(found[:, found[0] > _LEAST_USED * tiles])
  if parts.shape[1] > _MANY_SPLITS:
    parts = parts[:, (parts[4] == 1) | (parts[0] > _LEAST_USED * tiles)]
  return np.concatenate([parts, *filled], 1)[1:]
