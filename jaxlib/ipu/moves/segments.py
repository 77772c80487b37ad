"""Counts the segments of a move, and the peers of its tiles.

A segment is contiguous in the memories of both its sender and its receiver, so
it can be one message. A tile's peers are the tiles at the other end that it
exchanges with. Both are counted for the fullest tile at either end, by closed
forms of the mappings' blocks and of the accesses' strides; the numbers are
upper bounds for all tiles.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.peers import count_peers, factor_of, held_indices
from jaxlib.ipu.moves.traffic import Lines

WORD = 4


class SegmentCounts(NamedTuple):
  """Figures of the fullest tile at one end of a move; bounds for all tiles.

  Attributes:
    segments: number of segments.
    peers: number of peers. A message to which several tiles listen counts
      once, and of several replicas only the first one sends.
    length: elements of each segment; 1 if segments may differ in length.
    per_block: maximum number of segments of `block` contiguous elements.
    block: elements that are contiguous in the tile's memory.
    whole: whether all segments begin and end at words.
    elements: number of elements.
    even: whether contiguous blocks begin and end at words.
  """

  segments: int
  peers: int
  length: int
  per_block: int
  block: int
  whole: bool
  elements: int
  even: bool

  def crossing(
    self, most: int, keeps: bool, lines: Lines | None = None
  ) -> tuple[int, int]:
    """Segments and peers of a tile if it exchanges at most `most` elements.

    Args:
      most: maximum number of elements that cross from tile to tile.
      keeps: whether the tile also keeps elements, so is one of its own peers.
      lines: the tiles' elements in lines, from which the segments that stay on
        their tile can be told.
    """
    segments = max(min(self.segments, -(-most // self.length)), 1)
    if lines is not None and segments > 1:
      row = min(lines.length, self.block)
      each = -(-int(np.max(lines.inner)) // row) * self.per_block
      segments = max(min(segments, lines.crossing(each)), 1)
    return segments, min(max(self.peers - keeps, 1), segments)


@functools.lru_cache(maxsize=4096)
def count_segments(
  one: MoveEnd, other: MoveEnd, shape: tuple[int, ...], item_bytes: int
) -> tuple[SegmentCounts, SegmentCounts]:
  """The figures of both ends of a move, whichever of them sends."""
  if 0 in shape:
    nothing = SegmentCounts(0, 0, 1, 1, 1, True, 0, True)
    return nothing, nothing
  shape, (one, other) = _joined(shape, one, other)
  line, between = _common_line(shape, one.strides, other.strides)
  grain = WORD // item_bytes
  first, second = _padded(one.layout, other.layout, grain)
  if line == one.layout.num_elements == other.layout.num_elements:
    line = max(first.row, second.row)  # all of both tensors, in whole words
  spacings = [one.offset, other.offset, *first, *second]
  spacings += [line, *itertools.chain(*between)] if between else []
  whole = grain < 2 or not _misaligned(spacings, grain)
  back = [(t, s) for s, t in between]

  def count(near: _BlockedEnd, far: _BlockedEnd) -> SegmentCounts:
    dims = range(len(shape))
    tile = [held_indices(near.end, far.end, shape, d) for d in dims]
    elements = math.prod(h.indices for h in tile)
    per_block, length = _segments_per_line(line, near, far)
    images = _differing_images(shape, near.end, far)
    if images > 1:
      per_block, length = per_block * images, 1
    segments = -(-elements // min(line, near.block)) * per_block
    segments = min(segments, elements)
    peers = 1
    if segments > 1:
      peers = min(count_peers(tile, far.end, shape), segments)
    even = grain < 2 or not _misaligned((near.block, near.row), grain)
    return SegmentCounts(
      segments, peers, length, per_block, near.block, whole, elements, even
    )

  ends = (
    _BlockedEnd.of(one, first, between),
    _BlockedEnd.of(other, second, back),
  )
  return count(*ends), count(*ends[::-1])


def _joined(
  shape: tuple[int, ...], *ends: MoveEnd
) -> tuple[tuple[int, ...], list[MoveEnd]]:
  """Joins adjacent dimensions that are one dimension of a longer extent at both
  ends, each along one factor; returns the shape and the ends."""
  found: list[tuple[int, ...]] = []
  for n, *steps in zip(shape, *(end.strides for end in ends)):
    if n == 1:
      continue
    if found and all(
      s == n * t and (not t or _same_factor(end.layout, s, t))
      for end, s, t in zip(ends, found[-1][1:], steps)
    ):
      n *= found.pop()[0]
    found.append((n, *steps))
  extents, *strides = zip(*found) if found else [()] * (1 + len(ends))
  return extents, [e._replace(strides=s) for e, s in zip(ends, strides)]


def _same_factor(layout: Layout, *strides: int) -> bool:
  """Whether all strides step along the same factor."""
  return len({factor_of(layout, abs(s))[1] for s in strides}) == 1


def _differing_images(
  shape: Sequence[int], near: MoveEnd, far: _BlockedEnd
) -> int:
  """The number of places at the far end to which an element of the near end is
  copied, if the blocks of the far end may cut these places differently."""
  spacing = far.row if far.row % far.block else far.block
  cut = (
    n
    for n, s, t in zip(shape, near.strides, far.end.strides)
    if not s and t % spacing
  )
  return math.prod(cut)


def _common_line(
  shape: Sequence[int], near: Sequence[int], far: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
  """The number of elements that are contiguous in both tensors, called a line;
  and the strides, in both tensors, that lead from line to line."""
  length, between = 1, []
  for s, t, n in sorted(zip(near, far, shape)):
    if n == 1:
      continue
    if s == t == length and not between:
      length *= n
    else:
      between.append((s, t))
  return length, between


class _BlockedEnd(NamedTuple):
  """One end of a move.

  Attributes:
    end: its mapping and access.
    block, row: see `ContiguousBlocks`.
    line_strides: strides from line to line.
    stride_differences: the other end's strides from line to line, minus these.
  """

  end: MoveEnd
  block: int
  row: int
  line_strides: list[int]
  stride_differences: list[int]

  @classmethod
  def of(
    cls, end: MoveEnd, blocks: ContiguousBlocks, between: list[tuple[int, int]]
  ) -> _BlockedEnd:
    """`between` has the strides from line to line, as pairs of the stride at
    this end and the stride at the other one."""
    own = [s for s, _ in between]
    return cls(end, *blocks, own, [t - s for s, t in between])


def _segments_per_line(
  line: int, near: _BlockedEnd, far: _BlockedEnd
) -> tuple[int, int]:
  """The maximum number of segments in the part of a line that is contiguous on
  a tile of the near end; and their length, 1 if it may differ."""
  own, block, row = near.end.offset, near.block, near.row
  delta = far.end.offset - own
  if line <= block:
    even = _stays_between(line, own, (*near.line_strides, block, row))
    size, start, steps = line, far.end.offset, (line, *far.line_strides)
    repeats = steps[1:]
  else:
    even = not row % block and not _misaligned(
      (line, own, *near.line_strides), block
    )
    size, start = block, delta
    steps = repeats = (block, row, *near.stride_differences)
    inside = not _misaligned((line, own, *near.line_strides), row)
    alone = not _misaligned(near.line_strides, row) and _stays_between(
      line, own, (row,)
    )
    if not (even or inside or alone):
      return 2 * _spanned_blocks(size, 0, (1,), far), 1
  limits = (far.block, far.row)
  shift = (*near.stride_differences, row, *limits)
  # Whether rows of blocks begin and end together at both ends.
  alike = near.row == far.row and not _misaligned(
    (delta, *near.stride_differences), near.row
  )
  if (
    _stays_between(size, start, (*repeats, *limits))
    or _stays_between(block, delta, (block, *shift))
    or _stays_between(row, delta, shift)
    or (line > block and alike and not far.block % near.block)
  ):
    cuts, length = 1, size
  elif not far.row % far.block and not _misaligned(
    (size, start, *steps), far.block
  ):
    cuts, length = size // far.block, far.block
  else:
    if line > block and alike:
      start, repeats = 0, (block,)
    cuts = _spanned_blocks(size, start, repeats, far, line > block and alike)
    length = 1
  whole = even and (line <= block or not row % block)
  return (1 if whole or line > block else 2) * cuts, length if whole else 1


def _spanned_blocks(
  size: int,
  start: int,
  steps: Sequence[int],
  far: _BlockedEnd,
  alike: bool = False,
) -> int:
  """The maximum number of the far end's blocks that an interval spans.

  Args:
    size: elements of the interval.
    start, steps: intervals begin at `start` plus any multiples of `steps`.
    far: the far end.
    alike: rows of blocks begin and end together at both ends, so no interval
      crosses the end of the far end's rows.
  """
  row_ends, grid = 0, math.gcd(far.block, *steps)
  if not alike and far.row % far.block:
    grid = math.gcd(grid, far.row)
    if not _stays_between(size, start, (*steps, far.row)):
      row_ends, grid = (size - 1) // far.row + 1, 1
  # The fewest elements of a block that an interval may begin with.
  first = grid - start % grid
  return 1 - min((first - size) // far.block, 0) + row_ends


def _stays_between(size: int, start: int, steps: Sequence[int]) -> bool:
  """Whether intervals of `size` elements that begin at `start` plus any
  multiples of `steps` never cross a multiple of one of the steps."""
  grid = math.gcd(*steps)
  return start % grid + size <= grid


def _misaligned(starts: Sequence[int], spacing: int) -> bool:
  """Whether any of `starts` is no multiple of `spacing`."""
  return any(x % spacing for x in starts)


class ContiguousBlocks(NamedTuple):
  """The blocks of a mapping, in elements.

  Attributes:
    block: elements that are contiguous in the memory of a tile.
    row: elements after which blocks begin anew; the last block of a row may be
      short.
  """

  block: int
  row: int


def _padded(
  one: Layout, other: Layout, grain: int
) -> tuple[ContiguousBlocks, ContiguousBlocks]:
  """The blocks of two mappings. Nothing follows the end of a tensor, so a block
  or row that ends there is rounded up to whole words and whole blocks."""
  found = [(contiguous(x), x.num_elements) for x in (one, other)]
  unit = math.lcm(max(grain, 1), *(b.block for b, n in found if b.block < n))
  first, second = (
    ContiguousBlocks(*(x if x < n else -(-x // unit) * unit for x in b))
    for b, n in found
  )
  return first, second


def contiguous(layout: Layout) -> ContiguousBlocks:
  """The blocks of a mapping."""
  unit = 1
  for f in reversed(layout.factors):
    if f.parts > 1:
      return ContiguousBlocks(f.block * unit, f.extent * unit)
    unit *= f.extent
  return ContiguousBlocks(unit, unit)
