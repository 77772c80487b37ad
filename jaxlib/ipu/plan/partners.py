"""Upper bounds of the number of tiles of the other side that a tile exchanges
with, from the mappings' blocks and the strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.layout import Factor, Layout


class Held(NamedTuple):
  """A tile's indices of a dimension of the iteration space.

  Attributes:
    indices: maximum number of them.
    span: maximum distance from the first to the last, inclusive.
    even: whether every tile's first one is a multiple of `indices`.
    turns: number of intervals of this span: 2 where the end of one row and the
      beginning of the next are far apart on the other side.
    wraps: whether they may be the end of a row and the beginning of the next.
  """

  indices: int
  span: int
  even: bool
  turns: int = 1
  wraps: bool = False


def held(near: Side, far: Side, shape: Sequence[int], d: int) -> Held:
  """A tile's indices of a dimension on one side, given the other side."""
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
    return found  # an interval of each, not of both
  # The next row follows this one on the other side as well, or is elsewhere.
  ways = [far.strides[x] * (1 if near.strides[x] > 0 else -1) for x in (d, e)]
  follows = ways[0] * ways[1] > 0 and abs(ways[1]) >= abs(ways[0]) * shape[d]
  return found._replace(turns=1 if follows else 2, wraps=True)


def met(near: Sequence[Held], far: Side, shape: Sequence[int]) -> int:
  """On how many tiles of the other side a tile's elements are, if `near` are
  its indices of each dimension."""
  most = math.prod(h.indices for h in near)
  tiles, unit = 1, 1
  # Carry into the next factor: of a tile's elements, and of all elements.
  carry, beyond = 0, 0
  wraps = False  # whether what carries may begin a row anew
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
  """The number of parts of a factor that contain some digits: those that
  dimensions reach from a start, each (step, extent, held), largest step first.
  `over`: they also reach beyond the factor's end, where digits wrap. `wraps`:
  what carries into them may begin a row anew."""
  if f.parts <= 1 or not (carry or any(h.indices > 1 for _, _, h in dims)):
    return 1
  if len(dims) == 1 and not carry and dims[0][2].even:
    width = dims[0][2].indices * dims[0][0]
    if not (over and f.extent % width):
      if not f.block % width and not start % width:
        return 1
      if not width % f.block and not start % f.block:
        return min(width // f.block, f.parts)
  # Each index along the outer dimensions, and spans of the inner ones.
  found, outer = f.parts, math.prod(h.turns for _, _, h in dims)
  # Partial blocks: the first, the last, the one that may be short at the
  # factor's end, and those at the ends of rows.
  torn = 2 + (over and f.extent % f.block > 0)
  span = carry + _reach(dims)
  row = [dim for dim in dims if dim[2].wraps and dim[2].turns == 1]
  if wraps or (row and over):
    torn += 2
  elif row:
    last = start + sum((n - 1) * step for step, n, _ in dims)
    ends = (last + 1) % f.block, -start % f.block
    if any(ends):
      # Two intervals reach one less than one of as many indices.
      torn += sum(size > 0 for size in ends)
      span -= 1 + sum(ends)
  if row:
    # Both ends of rows reach as far in the other dimensions.
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
  """Like `held`, whatever the other side is."""
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
  # How far smaller steps reach along the same factor, or carry into it.
  inside = _lowest(side, shape) % unit + sum(
    (n - 1) * abs(s) for n, s in zip(shape, side.strides) if abs(s) < stride
  )
  inside -= inside % unit
  even = not start % f.block and not f.block % step and inside < stride
  # Longer steps have to lead to the beginning of blocks.
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
    # Later rows begin elsewhere in the factor: take the last such place.
    grid = math.gcd(f.extent, *(1 if s % unit else s // unit for s in apart))
    start = f.extent - grid + start % grid
  reach = start + (extent - 1) * step
  if reach >= f.extent:
    # Once in each of the blocks into which it carries.
    count *= (extent - 1) * step // f.extent + 2
    return Held(min(count, extent), extent, False)
  count = min(count, extent)
  return _backwards(Held(count, count, even), side.strides[d], extent)


def _backwards(held: Held, stride: int, extent: int) -> Held:
  """The same for a dimension counted from its end if its stride is negative."""
  if stride > 0 or not held.even:
    return held
  return held._replace(even=not extent % held.indices)


def _lowest(side: Side, shape: Sequence[int]) -> int:
  """The lowest element of its root that a side accesses."""
  back = (s * (n - 1) for s, n in zip(side.strides, shape) if s < 0)
  return side.offset + sum(back)


def factor(layout: Layout, stride: int) -> tuple[Factor, int]:
  """The factor along which a stride steps, and its unit."""
  unit = layout.num_elements
  for f in layout.factors:
    unit //= f.extent
    if unit <= stride:
      break
  return f, unit
