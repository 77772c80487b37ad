"""Bounds the number of peers of a tile in a move.

A tile's peers (*partners*) are the tiles that send to it, or to which it sends.
The bounds are closed forms of the blocks of both mappings and of the strides of
both accesses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.layout import Factor, Layout


class Held(NamedTuple):
  """The indices of one dimension of the iteration space on a tile of one side;
  bounds for all tiles.

  If the same factor also cuts an outer dimension, each index of that one begins
  a row of this one. A tile may then hold the end of one row and the beginning
  of the next.

  Attributes:
    indices: maximum number of indices.
    span: maximum distance from the first index to the last, inclusive.
    even: whether every tile's first index is a multiple of `indices`.
    turns: number of intervals of length `span`: 2 if the end of a row and the
      beginning of the next one are far apart on the other side.
    wraps: whether the indices may belong to the ends of two rows.
  """

  indices: int
  span: int
  even: bool
  turns: int = 1
  wraps: bool = False


def held(near: Side, far: Side, shape: Sequence[int], d: int) -> Held:
  """The indices of dimension d on a tile of the side `near`."""
  found = _alone(near, shape, d)
  if found.even or found.indices == shape[d]:
    return found
  stride = abs(near.strides[d])
  outer = [
    (abs(s), e)
    for e, s in enumerate(near.strides)
    if shape[e] > 1 and abs(s) > stride
  ]
  if not outer:
    return found
  reach, e = min(outer)
  if factor(near.layout, reach) != factor(near.layout, stride):
    return found  # the outer dimension is cut by another factor
  # On the other side, the next row either follows this one or is elsewhere.
  ways = [far.strides[x] * (1 if near.strides[x] > 0 else -1) for x in (d, e)]
  follows = ways[0] * ways[1] > 0 and abs(ways[1]) >= abs(ways[0]) * shape[d]
  return found._replace(turns=1 if follows else 2, wraps=True)


def met(near: Sequence[Held], far: Side, shape: Sequence[int]) -> int:
  """The maximum number of a tile's peers, given its indices of each dimension
  on its own side and the other side."""
  most = math.prod(h.indices for h in near)
  tiles, unit = 1, 1
  # How far the digits of a tile's elements (`carry`), and of all elements
  # (`beyond`), carry into the next outer factor.
  carry, beyond = 0, 0
  wraps = False  # whether `carry` may come from the ends of two rows
  lowest = _lowest(far, shape)
  for f in reversed(far.layout.factors):
    if f.extent == 1:
      continue
    dims = [
      (abs(s) // unit, n, _backwards(h, s, n))
      for h, s, n in zip(near, far.strides, shape)
      if n > 1 and unit <= abs(s) < unit * f.extent
    ]
    if any(unit <= abs(s) < unit * f.extent and s % unit for s in far.strides):
      return min(most, math.prod(x.parts for x in far.layout.factors))
    dims.sort(reverse=True)
    start = lowest // unit % f.extent
    beyond += start + sum((n - 1) * step for step, n, _ in dims)
    beyond //= f.extent
    over = beyond > 0
    tiles *= _parts(f, start, carry, dims, over, wraps)
    span = carry + _reach(dims)
    carry = span // f.extent + 1 if over else 0
    wraps = over and (wraps or any(h.wraps for _, _, h in dims))
    unit *= f.extent
  return min(most, tiles)


def _parts(
  f: Factor,
  start: int,
  carry: int,
  dims: Sequence[tuple[int, int, Held]],
  over: bool,
  wraps: bool,
) -> int:
  """The maximum number of a factor's parts that contain a tile's elements.

  Args:
    f: the factor.
    start: its lowest digit.
    carry: how far the inner factors carry into it.
    dims: (step, extent, held) of the dimensions that step along it, largest
      step first.
    over: whether any element reaches beyond its end, where the digit wraps.
    wraps: whether `carry` may come from the ends of two rows.
  """
  if f.parts <= 1 or not (carry or any(h.indices > 1 for _, _, h in dims)):
    return 1
  if len(dims) == 1 and not carry and dims[0][2].even:
    width = dims[0][2].indices * dims[0][0]
    if not (over and f.extent % width):
      if not f.block % width and not start % width:
        return 1
      if not width % f.block and not start % f.block:
        return min(width // f.block, f.parts)
  # For every number of outer dimensions there is a bound: their indices are
  # counted one by one, the span of the inner dimensions as a whole.
  found, outer = f.parts, math.prod(h.turns for _, _, h in dims)
  # Blocks that a span may cover in part: the first, the last, the short one at
  # the factor's end, and those at the ends of rows.
  torn = 2 + (over and f.extent % f.block > 0)
  span = carry + _reach(dims)
  row = [dim for dim in dims if dim[2].wraps and dim[2].turns == 1]
  if wraps or (row and over):
    torn += 2
  elif row:
    last = start + sum((n - 1) * step for step, n, _ in dims)
    ends = (last + 1) % f.block, -start % f.block
    if any(ends):
      # The first and last of n indices are n - 1 apart in one interval, and
      # one less in two intervals.
      torn += sum(size > 0 for size in ends)
      span -= 1 + sum(ends)
  if row:
    # The inner dimensions reach as far at both ends of a row.
    span += carry + _reach(dims) - _reach(row)
  for step, _, h in dims:
    found = min(found, outer * (span // f.block + torn))
    outer *= h.indices
    span -= (h.span - 1) * step
  return min(found, outer * (span // f.block + torn))


def _reach(dims: Sequence[tuple[int, int, Held]]) -> int:
  """How far a tile's indices reach along a factor."""
  return sum((h.span - 1) * step for step, _, h in dims)


def _alone(side: Side, shape: Sequence[int], d: int) -> Held:
  """Like `held`, regardless of the other side."""
  extent, stride = shape[d], abs(side.strides[d])
  if extent == 1 or not stride:
    return Held(1, 1, True)
  f, unit = factor(side.layout, stride)
  if f.parts <= 1:
    return Held(extent, extent, True)
  step, rest = divmod(stride, unit)
  if rest:
    return Held(extent, extent, False)
  start = _lowest(side, shape) // unit % f.extent
  # How far dimensions of smaller strides reach along this factor, or carry into
  # it, in elements.
  inside = _lowest(side, shape) % unit + sum(
    (n - 1) * abs(s) for n, s in zip(shape, side.strides) if abs(s) < stride
  )
  inside -= inside % unit
  even = not start % f.block and not f.block % step and inside < stride
  # Dimensions of longer strides have to lead to the beginning of blocks.
  even &= not any(
    s % (unit * f.block) and s % (unit * f.extent)
    for n, s in zip(shape, side.strides)
    if n > 1 and abs(s) > stride
  )
  count = (f.block - 1) // step + 1 + (inside > 0 and not even)
  row = unit * f.extent
  apart = [
    abs(s) for n, s in zip(shape, side.strides) if n > 1 and abs(s) > row
  ]
  if any(s % row for s in apart):
    # Other indices of these dimensions begin elsewhere in the factor: take the
    # last such place, from which the dimension reaches farthest.
    grid = math.gcd(f.extent, *(1 if s % unit else s // unit for s in apart))
    start = f.extent - grid + start % grid
  reach = start + (extent - 1) * step
  if reach >= f.extent:
    # The digit wraps, and the tile holds such an interval of each turn.
    count *= (extent - 1) * step // f.extent + 2
    return Held(min(count, extent), extent, False)
  count = min(count, extent)
  return _backwards(Held(count, count, even), side.strides[d], extent)


def _backwards(held: Held, stride: int, extent: int) -> Held:
  """The same with indices counted from the dimension's end if its stride is
  negative: intervals then begin at multiples of their length only if that
  divides the extent."""
  if stride > 0 or not held.even:
    return held
  return held._replace(even=not extent % held.indices)


def _lowest(side: Side, shape: Sequence[int]) -> int:
  """The number of the lowest element of its tensor that a side accesses."""
  back = (s * (n - 1) for s, n in zip(side.strides, shape) if s < 0)
  return side.offset + sum(back)


def factor(layout: Layout, stride: int) -> tuple[Factor, int]:
  """The factor along which a stride (in elements) steps, and the elements by
  which a step of its digit moves."""
  unit = layout.num_elements
  for f in layout.factors:
    unit //= f.extent
    if unit <= stride:
      break
  return f, unit
