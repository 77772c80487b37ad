"""The dimensions of a matrix product: loops over its operands and result.

Dimensions with a common stride are joined to one loop, so that planners see few
of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.ir.graph import Shape
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.moves.distinct import overlapping
from jaxlib.ipu.tile.view import View


def free(
  rank: int, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...]:
  """The dimensions of an operand that are neither batch nor contracting."""
  return tuple(d for d in range(rank) if d not in batch and d not in contract)


class _Joined(NamedTuple):
  """Joined dimensions: those of each operand, and of the result."""

  lhs: tuple[int, ...] = ()
  rhs: tuple[int, ...] = ()
  result: tuple[int, ...] = ()


class Access(NamedTuple):
  """The shape and the strides of an operand's view."""

  shape: Shape
  strides: tuple[int, ...]


class Side(NamedTuple):
  """An operand in an iteration space: its own dimensions, and for each of the
  iteration space's the operand's with the same index, or -1."""

  access: Access
  dims: tuple[int, ...]

  def operand(self, view: View) -> Operand:
    """The operand, given the view that has all of its elements."""
    shape, strides = self.access
    own = View(view.root, view.offset, strides, shape, view.dtype)
    return Operand(own, self.dims)


class Loops(NamedTuple):
  """The iteration space of a product; see `Product` (_dot_split.py)."""

  shape: Shape
  counts: tuple[int, int, int]
  sides: tuple[Side, Side]
  kept: tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def loops_of(d: DotDimensions, lhs: Access, rhs: Access) -> Loops:
  """The iteration space of a product of two views."""
  groups = _joined(d, lhs, rhs)
  loops = [loop for group in groups for loop in group]
  sides = (
    _side(lhs, [loop.lhs for loop in loops]),
    _side(rhs, [loop.rhs for loop in loops]),
  )
  extents = [
    [1 if to < 0 else side.access.shape[to] for to in side.dims]
    for side in sides
  ]
  shape = tuple([max(a, b) if a and b else 0 for a, b in zip(*extents)])
  outer = len(loops) - len(groups[3])
  kept = [i for i in range(outer) if loops[i].result and shape[i] != 1]
  return Loops(
    shape,
    (len(groups[0]), len(groups[1]), len(groups[2])),
    sides,
    tuple(sorted(kept, key=lambda i: loops[i].result)),
  )


def _side(whole: Access, loops: Sequence[tuple[int, ...]]) -> Side:
  """An operand with one dimension for each loop that has any of its own."""
  own = [loop for loop in loops if loop]
  access = Access(
    tuple([math.prod([whole.shape[d] for d in loop]) for loop in own]),
    tuple([whole.strides[loop[-1]] for loop in own]),
  )
  places = iter(range(len(own)))
  return Side(access, tuple([next(places) if loop else -1 for loop in loops]))


def _joined(d: DotDimensions, lhs: Access, rhs: Access) -> list[list[_Joined]]:
  """The dimensions of each group, joined where they have a common stride;
  without those of extent 1, but at least one for each group."""
  lhs_free = free(len(lhs.shape), d.lhs_batch, d.lhs_contract)
  rhs_free = free(len(rhs.shape), d.rhs_batch, d.rhs_contract)
  rank = len(d.lhs_batch) + len(lhs_free) + len(rhs_free)
  order = d.result or tuple(range(rank))
  place = iter([order.index(i) for i in range(rank)])
  groups = [
    [
      _Joined((a,), (b,), (next(place),))
      for a, b in zip(d.lhs_batch, d.rhs_batch)
    ],
    [_Joined((a,), (), (next(place),)) for a in lhs_free],
    [_Joined((), (b,), (next(place),)) for b in rhs_free],
    [_Joined((a,), (b,)) for a, b in zip(d.lhs_contract, d.rhs_contract)],
  ]

  def extent(loop: _Joined) -> int:
    return lhs.shape[loop.lhs[0]] if loop.lhs else rhs.shape[loop.rhs[0]]

  ones = {loop.result[0] for g in groups[:3] for loop in g if extent(loop) == 1}
  # Places in the result without dimensions of extent 1.
  rest = [p for p in range(rank) if p not in ones]

  # Dimensions of overlapping windows are not joined with others, which can be
  # cut without a larger halo.
  windows = [windowed(*access) for access in (lhs, rhs)]

  def joins(a: _Joined, b: _Joined) -> bool:
    for view, among, one, other in (
      (lhs, windows[0], a.lhs, b.lhs),
      (rhs, windows[1], a.rhs, b.rhs),
    ):
      if one and (one[-1] in among) != (other[0] in among):
        return False
      if one and view.strides[one[-1]] != (
        view.shape[other[0]] * view.strides[other[0]]
      ):
        return False
    if not a.result:
      return True
    return rest.index(b.result[0]) == rest.index(a.result[-1]) + 1

  joined: list[list[_Joined]] = []
  for group in groups:
    out: list[_Joined] = []
    for loop in group:
      if extent(loop) == 1:
        continue
      if out and joins(out[-1], loop):
        a = out.pop()
        loop = _Joined(
          a.lhs + loop.lhs, a.rhs + loop.rhs, a.result + loop.result
        )
      out.append(loop)
    joined.append(out or [_Joined()])
  return joined


def windowed(shape: Shape, strides: tuple[int, ...]) -> set[int]:
  """Dimensions of overlapping windows."""
  return {d for group in overlapping(shape, strides) for d in group}


def part_of(
  operand: Operand, begins: Sequence[int], ends: Sequence[int]
) -> Operand:
  """A block of an operand, which begins and ends at these indices of the
  iteration space."""
  view = operand.view
  own = [d for d, to in enumerate(operand.dims) if to >= 0]
  offset = sum([begins[d] * s for d, s in zip(own, view.strides)])
  part = view._replace(
    offset=view.offset + offset,
    shape=tuple([ends[d] - begins[d] for d in own]),
  )
  return operand._replace(view=part)
