"""The dimensions of a matrix product: loops over its operands and result.

Dimensions with a common stride are joined to one loop, so that planners see few
of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxlib.ipu.ir.attributes import DotDimensions
from jaxlib.ipu.lower.exchange import Operand
from jaxlib.ipu.ops._dot_split import windowed
from jaxlib.ipu.tile.view import View, merge


def free(
  rank: int, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...]:
  """The dimensions of an operand that are neither batch nor contracting."""
  return tuple(d for d in range(rank) if d not in batch and d not in contract)


@dataclasses.dataclass(frozen=True, slots=True)
class JoinedDims:
  """Joined dimensions: those of each operand, and of the result."""

  lhs: tuple[int, ...] = ()
  rhs: tuple[int, ...] = ()
  result: tuple[int, ...] = ()


def loops_of(d: DotDimensions, lhs: View, rhs: View) -> list[list[JoinedDims]]:
  """The dimensions of each group, joined where they have a common stride;
  without those of extent 1, but at least one for each group."""
  lhs_free = free(len(lhs.shape), d.lhs_batch, d.lhs_contract)
  rhs_free = free(len(rhs.shape), d.rhs_batch, d.rhs_contract)
  rank = len(d.lhs_batch) + len(lhs_free) + len(rhs_free)
  order = d.result or tuple(range(rank))
  place = iter([order.index(i) for i in range(rank)])
  groups = [
    [
      JoinedDims((a,), (b,), (next(place),))
      for a, b in zip(d.lhs_batch, d.rhs_batch)
    ],
    [JoinedDims((a,), (), (next(place),)) for a in lhs_free],
    [JoinedDims((), (b,), (next(place),)) for b in rhs_free],
    [JoinedDims((a,), (b,)) for a, b in zip(d.lhs_contract, d.rhs_contract)],
  ]

  def extent(loop: JoinedDims) -> int:
    return lhs.shape[loop.lhs[0]] if loop.lhs else rhs.shape[loop.rhs[0]]

  ones = {loop.result[0] for g in groups[:3] for loop in g if extent(loop) == 1}
  # Places in the result without dimensions of extent 1.
  rest = [p for p in range(rank) if p not in ones]

  # Dimensions of overlapping windows are not joined with others, which can be
  # cut without a larger halo.
  windows = [windowed(view) for view in (lhs, rhs)]

  def joins(a: JoinedDims, b: JoinedDims) -> bool:
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

  joined: list[list[JoinedDims]] = []
  for group in groups:
    out: list[JoinedDims] = []
    for loop in group:
      if extent(loop) == 1:
        continue
      if out and joins(out[-1], loop):
        a = out.pop()
        loop = JoinedDims(
          a.lhs + loop.lhs, a.rhs + loop.rhs, a.result + loop.result
        )
      out.append(loop)
    joined.append(out or [JoinedDims()])
  return joined


def as_loops(view: View, loops: Sequence[tuple[int, ...]]) -> View:
  """The operand with one dimension for each loop; extent 1 along loops that it
  does not have."""
  used = {d for loop in loops for d in loop}
  ones = [d for d in range(len(view.shape)) if d not in used]
  merged = merge(view, [*loops, ones])
  assert merged is not None, "joined loops have one stride"
  rank = len(loops)
  return merged._replace(
    shape=merged.shape[:rank], strides=merged.strides[:rank]
  )


def part_of(
  matrix: View,
  begins: Sequence[int],
  ends: Sequence[int],
  loops: Sequence[tuple[int, ...]],
) -> Operand:
  """A part of an operand, with its dimension for each loop."""
  own = [d for d, loop in enumerate(loops) if loop]
  some = matrix.slice(
    [begins[d] if loop else 0 for d, loop in enumerate(loops)],
    [ends[d] if loop else 1 for d, loop in enumerate(loops)],
    [1] * len(loops),
  )
  some = some._replace(
    shape=tuple(some.shape[d] for d in own),
    strides=tuple(some.strides[d] for d in own),
  )
  dims = tuple(own.index(d) if d in own else -1 for d in range(len(loops)))
  return Operand(some, dims)
