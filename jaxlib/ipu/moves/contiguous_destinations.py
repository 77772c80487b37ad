"""Counts the contiguous destinations of a move: intervals of a receiver's
memory whose elements all come from one peer, where they may have any order.

A segment (moves/segments.py) is contiguous in both tiles' memories, a
contiguous destination in that of the receiver. A reversed or transposed view
has as many segments as elements, but often a single contiguous destination for
each peer. The same is counted for senders: intervals whose elements all go to
one peer. Both are called intervals below, the tile whose memory they are in the
near end, its peers the far end.

A tile's elements are split into dimensions in the tile's storage order. The
innermost dimensions along which the peer never changes form a box. The next
dimension leads from box to box, and to another peer where it crosses the end of
one of the far end's blocks. Each index along the dimensions outside that one is
assumed to begin a new interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxlib.ipu.layout import Factor, Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import overlapping


class _Dim(NamedTuple):
  """A dimension of a tile's elements.

  Attributes:
    extent: number of indices.
    far: the stride at the far end, in elements.
    short: by how many elements of the far end the dimensions inside the
      last index reach less far than those inside the others.
  """

  extent: int
  far: int
  short: int = 0


class _Tail(NamedTuple):
  """An interval of indices that begins or ends within a row of the dimensions
  that it spans.

  Attributes:
    dims: the dimensions, innermost first.
    length: maximum number of indices in the interval.
    grid: the interval begins at a multiple of this number.
  """

  dims: list[_Dim]
  length: int
  grid: int


class _Memory(NamedTuple):
  """A tile's elements, in its storage order.

  Attributes:
    held: dimensions that the tile holds entirely, innermost first.
    tail: the interval that it holds of the dimensions outside of these, if it
      is not simply another dimension.
    times: how often the tile holds all of that.
    rest: dimensions along which tiles, or the repetitions on a tile, differ.
  """

  held: list[_Dim]
  tail: _Tail | None
  times: int
  rest: list[_Dim]


class _Digit(NamedTuple):
  """A factor that the far end cuts into blocks. The peer changes where the
  factor's digit passes from one block to the next.

  Attributes:
    unit: elements per step of the digit.
    extent: number of steps after which the digit wraps.
    block: steps from one block to the next.
    start: the digit of the first element.
    wraps: whether any element lies beyond the extent.
  """

  unit: int
  extent: int
  block: int
  start: int
  wraps: bool

  def step(self, dim: _Dim) -> int:
    """By how much an index along a dimension moves the digit."""
    if abs(dim.far) < self.unit:
      return 0
    step = dim.far // self.unit
    return step if step % self.extent else 0

  def _begins(
    self, box: Sequence[_Dim], rest: Sequence[_Dim]
  ) -> Iterator[tuple[int, int]]:
    """Yields bounds of the digits at which a box may begin, as (grid, last):
    modulo `grid`, no begin exceeds `last` (which may itself exceed `grid`).

    The dimensions of `rest` are divided into those of long steps, which are
    multiples of the grid, and those of short steps, whose reach adds up to
    `last`; each pair divides them at another place.
    """
    low = self.start
    low += sum(min((d.extent - 1) * self.step(d), 0) for d in box)
    ways = []
    for d in rest:
      step = self.step(d)
      reach = (d.extent - 1) * abs(step) - d.short // self.unit
      ways.append((abs(step), step < 0, reach if step else 0))
    ways.sort()
    spread = 0
    for i, (_, back, reach) in enumerate([(0, False, 0), *ways]):
      low, spread = low - back * reach, spread + reach
      grid = math.gcd(self.block, *(x for x, _, _ in ways[i:]))
      if self.wraps:
        grid = math.gcd(grid, self.extent)
      yield grid, low % grid + spread

  def has(self, box: Sequence[_Dim], rest: Sequence[_Dim]) -> bool:
    """Whether a box lies within one block, for all indices of `rest`."""
    size = 1 + sum((d.extent - 1) * abs(self.step(d)) for d in box)
    return any(last + size <= grid for grid, last in self._begins(box, rest))

  def changes(
    self, box: Sequence[_Dim], dim: _Dim, rest: Sequence[_Dim]
  ) -> int:
    """The maximum number of block changes between the boxes along `dim`."""
    span = (dim.extent - 1) * abs(self.step(dim))
    if not span:
      return 0
    if self.wraps and self.extent % self.block:
      found = span // self.block + span // self.extent + 2
    else:
      found = min(
        (self.block - grid + last + span) // self.block
        for grid, last in self._begins([*box, dim], rest)
        if last < grid
      )
    return min(found, dim.extent - 1)

  def even(self, dim: _Dim, rest: Sequence[_Dim], grain: int) -> bool:
    """Whether the block only changes at multiples of `grain` along `dim`."""
    step = self.step(dim)
    begin = self.start if step > 0 else self.start + 1
    steps = [self.step(d) for d in rest]
    return not step or (
      abs(step) == 1
      and not any(x % grain for x in (begin, self.block, self.extent, *steps))
    )


def contiguous_destinations(
  near: MoveEnd, far: MoveEnd, shape: Sequence[int], elements: int, grain: int
) -> tuple[int, bool]:
  """The maximum number of intervals of a tile at the end `near`; and whether
  they begin and end at words, provided that its contiguous blocks do.

  Where intervals cannot be counted, each element is taken for one.

  Args:
    near: the receivers' end, for contiguous destinations; the senders' end to
      count the intervals that go to one peer.
    far: the end of their peers.
    shape: the iteration space.
    elements: number of elements on the fullest tile, or an upper bound.
    grain: elements in a word.
  """
  single = elements, grain == 1
  if any(overlapping(tuple(shape), x.strides) for x in (near, far)):
    return single
  # Reverse dimensions of negative strides, so that the near end is accessed
  # forwards.
  first, start, stepped, many = near.offset, far.offset, [], []
  for n, s, t in zip(shape, near.strides, far.strides):
    if n == 1:
      continue
    if s < 0:
      first, start, s, t = first + (n - 1) * s, start + (n - 1) * t, -s, -t
    if s:
      stepped.append((s, _Dim(n, t)))
    else:
      many.append(_Dim(n, t))
  stepped = _split(_joined(sorted(stepped)), far.layout)
  dims = [d for _, d in stepped]
  digits = _digits(far.layout, start, [*dims, *many])
  for x in digits:
    # An element that has many places at the far end must have the same
    # distance from block boundaries in all of them.
    if any(x.step(d) % x.block for d in many) or (many and x.wraps):
      return single
  memory = _memory(near.layout, first, stepped, elements)
  count, even = _count(memory, digits, many, grain)
  size = math.prod(d.extent for d in dims)
  return count, even or (count == 1 and size == near.layout.num_elements)


def _joined(stepped: list[tuple[int, _Dim]]) -> list[tuple[int, _Dim]]:
  """Joins adjacent dimensions that are one longer dimension at both ends."""
  found: list[tuple[int, _Dim]] = []
  for s, d in stepped:
    if found:
      t, e = found[-1]
      if s == t * e.extent and d.far == e.far * e.extent:
        found[-1] = t, _Dim(e.extent * d.extent, e.far)
        continue
    found.append((s, d))
  return found


def _split(
  stepped: list[tuple[int, _Dim]], layout: Layout
) -> list[tuple[int, _Dim]]:
  """Splits each dimension that carries from one factor of the far end into
  the next, if its extent can be divided there."""
  unit = 1
  for f in reversed(layout.joined.factors[1:]):
    unit *= f.extent
    found = []
    for s, d in stepped:
      size = unit // math.gcd(d.far, unit)
      if abs(d.far) < unit == size * abs(d.far) and not d.extent % size:
        found.append((s, _Dim(size, d.far)))
        s, d = s * size, _Dim(d.extent // size, d.far * size)
      found.append((s, d))
    stepped = found
  return stepped


def _digits(layout: Layout, start: int, dims: Sequence[_Dim]) -> list[_Digit]:
  """The factors that the far end cuts. Digits count steps of the factor if
  no index carries into it from inner factors, otherwise elements."""
  found = []
  lowest = start + sum(min((d.extent - 1) * d.far, 0) for d in dims)
  unit = layout.num_elements
  for f in layout.joined.factors:
    unit //= f.extent
    if f.parts <= 1:
      continue
    below = sum((d.extent - 1) * abs(d.far) for d in dims if abs(d.far) < unit)
    clean = lowest % unit + below < unit
    clean &= not any(d.far % unit for d in dims if abs(d.far) >= unit)
    by = unit if clean else 1
    extent, block = (x * unit // by for x in (f.extent, f.block))
    digit = _Digit(by, extent, block, 0, False)
    reach = back = 0
    for d in dims:
      step = (d.extent - 1) * digit.step(d)
      reach, back = reach + abs(step), back - min(step, 0)
    low = lowest // by % extent
    found.append(digit._replace(start=low + back, wraps=low + reach >= extent))
  return found


def _memory(
  layout: Layout, first: int, stepped: list[tuple[int, _Dim]], elements: int
) -> _Memory:
  """Splits a tile's elements into dimensions.

  Args:
    layout: the mapping of the tile's end.
    first: the first accessed element.
    stepped: (stride, dimension) in that end's tensor, smallest stride first.
    elements: maximum number of elements on a tile.
  """
  todo = stepped[::-1]
  held: list[_Dim] = []
  rest: list[_Dim] = []
  tail, times, root, count = None, 1, 1, 1
  for f in reversed(layout.joined.factors):
    group, whole = _take(todo, root, f.extent)
    offs = (first, *(s for s, _ in todo))
    if not whole or any(x % (root * f.extent) for x in offs):
      # The remaining dimensions leave gaps, or are not aligned with the
      # factor: count the intervals of those that are dense.
      size = math.prod(d.extent for d in group)
      rest += [d for _, d in todo]
      if tail is not None:
        times = -(-elements // (count * tail.length))
        return _Memory(held, tail, times, [*rest, *group])
      length = min(size, f.block)
      times = -(-elements // (count * length))
      begins = math.gcd(root * f.extent, *(s for s, _ in todo))
      if first % begins + root * size > begins:
        times *= 2  # an interval that wraps
      grid = math.gcd(*offs, root * f.block, root * f.extent)
      grid = 1 if grid % root else grid // root
      tail = _Tail(group, length, grid) if group else None
      return _Memory(held, tail, times, rest)
    kept, cut, ragged = _cut(group, f)
    root *= f.extent
    rest += cut
    if tail is None:
      held += kept
      count *= math.prod(d.extent for d in kept)
      tail = ragged
    else:
      rest += kept + (ragged.dims if ragged else [])
      times *= f.block
  return _Memory(held, tail, times, rest)


def _take(
  todo: list[tuple[int, _Dim]], root: int, extent: int
) -> tuple[list[_Dim], bool]:
  """Removes the dimensions from `todo` that step through a factor element by
  element; returns them, and whether they cover the factor exactly."""
  group, left = [], extent
  while left > 1 and todo and todo[-1][0] == root:
    s, d = todo[-1]
    inner = math.gcd(d.extent, left)
    todo.pop()
    if inner != min(d.extent, left):
      return [*group, d], False
    if inner < d.extent:
      todo.append((s * inner, _Dim(d.extent // inner, d.far * inner)))
    group.append(_Dim(inner, d.far))
    root, left = root * inner, left // inner
  return group, left == 1


def _cut(
  group: list[_Dim], f: Factor
) -> tuple[list[_Dim], list[_Dim], _Tail | None]:
  """Splits the dimensions of a factor into those that a tile holds entirely and
  those along which tiles differ; the third part is the interval of the others,
  if the factor's blocks are not made of whole rows of them."""
  size = min(f.block, f.extent)
  held, rest = [], []
  for i, d in enumerate(group):
    inner, last = min(size, d.extent), i + 1 == len(group)
    if size % inner or (d.extent % inner and not last):
      return held, rest, _Tail(group[i:], size, size)
    if inner > 1:
      held.append(_Dim(inner, d.far))
    if inner < d.extent:
      short = abs(d.far) * (-d.extent % inner)
      rest.append(_Dim(-(-d.extent // inner), d.far * inner, short))
    size //= inner
  return held, rest, None


def _count(
  memory: _Memory, digits: list[_Digit], many: list[_Dim], grain: int
) -> tuple[int, bool]:
  """The number of intervals of a tile's memory, and whether all of them consist
  of whole words."""
  held, tail = memory.held, memory.tail
  beyond = [*memory.rest, *many]
  more = [*tail.dims, *beyond] if tail else beyond
  count, box, even = _boxes(held, digits, more, grain)
  size = math.prod(d.extent for d in held)
  if tail is not None:
    if len(box) < len(held):
      count *= tail.length
    else:
      count, unit = _intervals(tail, box, digits, beyond)
      even = not size * unit % grain and not size * tail.grid % grain
  return count * memory.times, even


def _boxes(
  dims: list[_Dim], digits: list[_Digit], rest: list[_Dim], grain: int
) -> tuple[int, list[_Dim], bool]:
  """The number of intervals of the dimensions that a tile holds entirely; those
  of the dimensions that form a box; whether intervals consist of whole words.
  """
  for i, d in enumerate(dims):
    box, outer = dims[:i], [*dims[i + 1 :], *rest]
    if d.far and all(x.has([*box, d], outer) for x in digits):
      continue
    count = d.extent
    if d.far:
      count = min(count, 1 + sum(x.changes(box, d, outer) for x in digits))
    size = math.prod(b.extent for b in box)
    left = grain // math.gcd(size, grain)
    even = left == 1
    if not even and not box and (i + 1 == len(dims) or not d.extent % left):
      even = all(x.even(d, outer, left) for x in digits)
    return count * math.prod(o.extent for o in dims[i + 1 :]), box, even
  return 1, dims, not math.prod(d.extent for d in dims) % grain


def _intervals(
  tail: _Tail, box: list[_Dim], digits: list[_Digit], rest: list[_Dim]
) -> tuple[int, int]:
  """The number of intervals of an interval of boxes; and a number of boxes at
  whose multiples all intervals begin and end."""
  inside, unit = 0, 1
  while unit * tail.dims[inside].extent < tail.length:
    unit *= tail.dims[inside].extent
    inside += 1
  inner, dim, outer = (
    tail.dims[:inside], tail.dims[inside], tail.dims[inside + 1 :],
  )  # fmt: skip
  beyond = [*outer, *rest]
  grid = math.gcd(tail.grid, unit)
  touched = (unit - grid + tail.length - 1) // unit + 1
  if not outer:
    touched = min(touched, dim.extent)
  each, alike, _ = _boxes([*box, *inner], digits, [dim, *beyond], 1)
  if len(alike) < len(box) + inside:
    unit = math.prod(d.extent for d in alike[len(box) :])
    return touched * each, unit
  if not dim.far:
    return touched, unit
  # The interval may begin at any multiple of the grid, and wrap into the next
  # dimension.
  step = 1 if tail.grid % unit else tail.grid // unit
  if outer:
    step = math.gcd(step, dim.extent)
  starts = [_Dim(dim.extent, dim.far * step), *beyond]
  along = _Dim(min(touched, dim.extent), dim.far)
  changes = sum(x.changes([*box, *inner], along, starts) for x in digits)
  turns = 2 if outer else 1
  return min(touched, turns * (1 + changes)), unit
