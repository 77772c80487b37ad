"""Bounds the number of peers of a tile in a move.

A tile's peers are the tiles that send to it, or to which it sends. The bounds
are closed forms of the blocks of both mappings and of the strides of both
accesses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.moves.affine import MoveEnd


class HeldIndices(NamedTuple):
  """The indices of one dimension of the iteration space on a tile at one end;
  bounds for all tiles.

  If the same factor also cuts an outer dimension, each index of that one begins
  a row of this one. A tile may then hold the end of one row and the beginning
  of the next.

  Attributes:
    indices: maximum number of indices.
    span: maximum distance from the first index to the last, inclusive.
    even: whether every tile's first index is a multiple of `indices`.
    intervals: number of intervals of length `span`: 2 if the end of a row
      and the beginning of the next one are far apart at the other end.
    wraps: whether the indices may belong to the ends of two rows.
  """

  indices: int
  span: int
  even: bool
  intervals: int = 1
  wraps: bool = False


def held_indices(
  near: MoveEnd, far: MoveEnd, shape: Sequence[int], d: int
) -> HeldIndices:
  """The indices of dimension d on a tile at the end `near`."""
  found = _held_at_one_end(near, shape, d)
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
  if factor_of(near.layout, reach) != factor_of(near.layout, stride):
    return found  # the outer dimension is cut by another factor
  # At the other end, the next row either follows this one or is elsewhere.
  ways = [far.strides[x] * (1 if near.strides[x] > 0 else -1) for x in (d, e)]
  follows = ways[0] * ways[1] > 0 and abs(ways[1]) >= abs(ways[0]) * shape[d]
  return found._replace(intervals=1 if follows else 2, wraps=True)


def count_peers(
  near: Sequence[HeldIndices], far: MoveEnd, shape: Sequence[int]
) -> int:
  """The maximum number of a tile's peers, given its indices of each dimension
  at its own end and the other one."""
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
    tiles *= _spanned_parts(f, start, carry, dims, over, wraps)
    span = carry + _reach(dims)
    carry = span // f.extent + 1 if over else 0
    wraps = over and (wraps or any(h.wraps for _, _, h in dims))
    unit *= f.extent
  return min(most, tiles)


def _spanned_parts(
  f: Factor,
  start: int,
  carry: int,
  dims: Sequence[tuple[int, int, HeldIndices]],
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
  found, outer = f.parts, math.prod(h.intervals for _, _, h in dims)
  # Blocks that a span may cover in part: the first, the last, the short one at
  # the factor's end, and those at the ends of rows.
  torn = 2 + (over and f.extent % f.block > 0)
  span = carry + _reach(dims)
  row = [dim for dim in dims if dim[2].wraps and dim[2].intervals == 1]
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


def _reach(dims: Sequence[tuple[int, int, HeldIndices]]) -> int:
  """How far a tile's indices reach along a factor."""
  return sum((h.span - 1) * step for step, _, h in dims)


def _held_at_one_end(end: MoveEnd, shape: Sequence[int], d: int) -> HeldIndices:
  """Like `held_indices`, regardless of the other end."""
  extent, stride = shape[d], abs(end.strides[d])
  if extent == 1 or not stride:
    return HeldIndices(1, 1, True)
  f, unit = factor_of(end.layout, stride)
  if f.parts <= 1:
    return HeldIndices(extent, extent, True)
  step, rest = divmod(stride, unit)
  if rest:
    return HeldIndices(extent, extent, False)
  start = _lowest(end, shape) // unit % f.extent
  # How far dimensions of smaller strides reach along this factor, or carry into
  # it, in elements.
  inside = _lowest(end, shape) % unit + sum(
    (n - 1) * abs(s) for n, s in zip(shape, end.strides) if abs(s) < stride
  )
  inside -= inside % unit
  even = not start % f.block and not f.block % step and inside < stride
  # Dimensions of longer strides have to lead to the beginning of blocks.
  even &= not any(
    s % (unit * f.block) and s % (unit * f.extent)
    for n, s in zip(shape, end.strides)
    if n > 1 and abs(s) > stride
  )
  count = (f.block - 1) // step + 1 + (inside > 0 and not even)
  row = unit * f.extent
  apart = [abs(s) for n, s in zip(shape, end.strides) if n > 1 and abs(s) > row]
  if any(s % row for s in apart):
    # Other indices of these dimensions begin elsewhere in the factor: take the
    # last such place, from which the dimension reaches farthest.
    grid = math.gcd(f.extent, *(1 if s % unit else s // unit for s in apart))
    start = f.extent - grid + start % grid
  reach = start + (extent - 1) * step
  if reach >= f.extent:
    # The digit wraps, and the tile holds such an interval of each turn.
    count *= (extent - 1) * step // f.extent + 2
    return HeldIndices(min(count, extent), extent, False)
  count = min(count, extent)
  return _backwards(HeldIndices(count, count, even), end.strides[d], extent)


def _backwards(indices: HeldIndices, stride: int, extent: int) -> HeldIndices:
  """The same with indices counted from the dimension's end if its stride is
  negative: intervals then begin at multiples of their length only if that
  divides the extent."""
  if stride > 0 or not indices.even:
    return indices
  return indices._replace(even=not extent % indices.indices)


def _lowest(end: MoveEnd, shape: Sequence[int]) -> int:
  """The number of the lowest element of its tensor that a move accesses."""
  back = (s * (n - 1) for s, n in zip(end.strides, shape) if s < 0)
  return end.offset + sum(back)


def factor_of(layout: Layout, stride: int) -> tuple[Factor, int]:
  """The factor along which a stride (in elements) steps, and the elements by
  which a step of its digit moves."""
  unit = layout.num_elements
  for f in layout.factors:
    unit //= f.extent
    if unit <= stride:
      break
  return f, unit
