"""Counts the segments of a move, and the peers of its tiles.

A segment (*piece*) is contiguous in the memories of both its sender and its
receiver, so it can be one message. A tile's peers (*partners*) are the tiles of
the other side that it exchanges with. Both are counted for the fullest tile of
either side, by closed forms of the mappings' blocks and of the accesses'
strides; they are upper bounds for all tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxlib.ipu.plan.affine import Side
from jaxlib.ipu.plan.layout import Layout
from jaxlib.ipu.plan.moved_elements import Lines
from jaxlib.ipu.plan.partners import factor, held, met

WORD = 4


class Runs(NamedTuple):
  """Figures of the fullest tile of one side of a move; bounds for all tiles.

  Attributes:
    pieces: number of segments.
    partners: number of peers. A message to which several tiles listen counts
      once, and of several replicas only the first one sends.
    piece: elements of each segment; 1 if segments may differ in length.
    cut: maximum number of segments of `block` contiguous elements.
    block: elements that are contiguous in the tile's memory.
    whole: whether all segments begin and end at words.
    elements: number of elements.
    even: whether contiguous blocks begin and end at words.
  """

  pieces: int
  partners: int
  piece: int
  cut: int
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
    pieces = max(min(self.pieces, -(-most // self.piece)), 1)
    if lines is not None and pieces > 1:
      row = min(lines.length, self.block)
      each = -(-int(np.max(lines.inner)) // row) * self.cut
      pieces = max(min(pieces, lines.crossing(each)), 1)
    return pieces, min(max(self.partners - keeps, 1), pieces)


@functools.lru_cache(maxsize=4096)
def runs(
  one: Side, other: Side, shape: tuple[int, ...], item_bytes: int
) -> tuple[Runs, Runs]:
  """The figures of both sides of a move, whichever of them sends."""
  if 0 in shape:
    nothing = Runs(0, 0, 1, 1, 1, True, 0, True)
    return nothing, nothing
  shape, (one, other) = _joined(shape, one, other)
  line, apart = _line(shape, one.strides, other.strides)
  grain = WORD // item_bytes
  first, second = _padded(one.layout, other.layout, grain)
  if line == one.layout.num_elements == other.layout.num_elements:
    line = max(first.row, second.row)  # all of both tensors, in whole words
  spacings = [one.offset, other.offset, *first, *second]
  spacings += [line, *(x for pair in apart for x in pair)] if apart else []
  whole = grain < 2 or not _off(spacings, grain)
  back = [(t, s) for s, t in apart]

  def side(near: _End, far: _End) -> Runs:
    dims = range(len(shape))
    tile = [held(near.side, far.side, shape, d) for d in dims]
    elements = math.prod(h.indices for h in tile)
    pieces, piece = _pieces(line, near, far)
    images = _images(shape, near.side, far)
    if images > 1:
      pieces, piece = pieces * images, 1
    count = min(-(-elements // min(line, near.block)) * pieces, elements)
    partners = min(met(tile, far.side, shape), count) if count > 1 else 1
    even = grain < 2 or not _off((near.block, near.row), grain)
    return Runs(
      count, partners, piece, pieces, near.block, whole, elements, even
    )

  ends = _End.of(one, first, apart), _End.of(other, second, back)
  return side(*ends), side(*ends[::-1])


def _joined(
  shape: tuple[int, ...], *sides: Side
) -> tuple[tuple[int, ...], list[Side]]:
  """Joins adjacent dimensions that are one dimension of a longer extent on both
  sides, each along one factor; returns the shape and the sides."""
  found: list[tuple[int, ...]] = []
  for n, *steps in zip(shape, *(side.strides for side in sides)):
    if n == 1:
      continue
    if found and all(
      s == n * t and (not t or _alike(side.layout, s, t))
      for side, s, t in zip(sides, found[-1][1:], steps)
    ):
      n *= found.pop()[0]
    found.append((n, *steps))
  extents, *walks = zip(*found) if found else [()] * (1 + len(sides))
  return extents, [s._replace(strides=w) for s, w in zip(sides, walks)]


def _alike(layout: Layout, *strides: int) -> bool:
  """Whether all strides step along the same factor."""
  return len({factor(layout, abs(s))[1] for s in strides}) == 1


def _images(shape: Sequence[int], near: Side, far: _End) -> int:
  """In how many places of the other side an element appears that lie
  differently in that side's blocks, so that the blocks cut it differently."""
  spacing = far.row if far.row % far.block else far.block
  cut = (
    n
    for n, s, t in zip(shape, near.strides, far.side.strides)
    if not s and t % spacing
  )
  return math.prod(cut)


def _line(
  shape: Sequence[int], near: Sequence[int], far: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
  """The number of elements that are contiguous in both tensors, called a line;
  and the strides, in both tensors, that lead from line to line."""
  length, apart = 1, []
  for s, t, n in sorted(zip(near, far, shape)):
    if n == 1:
      continue
    if s == t == length and not apart:
      length *= n
    else:
      apart.append((s, t))
  return length, apart


class _End(NamedTuple):
  """One side of a move.

  Attributes:
    side: its mapping and access.
    block, row: see `Blocks`.
    apart: strides from line to line.
    beside: the other side's strides from line to line, minus these.
  """

  side: Side
  block: int
  row: int
  apart: list[int]
  beside: list[int]

  @classmethod
  def of(cls, side: Side, blocks: Blocks, apart: list[tuple[int, int]]) -> _End:
    """A side, given (its own, the other side's) strides from line to line."""
    own = [s for s, _ in apart]
    return cls(side, *blocks, own, [t - s for s, t in apart])


def _pieces(line: int, near: _End, far: _End) -> tuple[int, int]:
  """The maximum number of segments of the part of a line that is contiguous on
  a tile of the near side; and their length, 1 if it may differ."""
  own, block, row = near.side.offset, near.block, near.row
  if line <= block:
    even = _fits(line, own, (*near.apart, block, row))
    run, starts = line, (far.side.offset, line, *far.apart)
  else:
    even = not row % block and not _off((line, own, *near.apart), block)
    run, starts = block, (far.side.offset - own, block, row, *near.beside)
    inside = not _off((line, own, *near.apart), row)
    alone = not _off(near.apart, row) and _fits(line, own, (row,))
    if not (even or inside or alone):
      return 2 * _cuts(run, 0, (1,), far), 1
  limits = (far.block, far.row)
  shift = (*near.beside, row, *limits)
  delta = far.side.offset - own
  start, steps = starts[0], starts[2 if line <= block else 1 :]
  alike = near.row == far.row and not _off((delta, *near.beside), near.row)
  if (
    _fits(run, start, (*steps, *limits))
    or _fits(block, delta, (block, *shift))
    or _fits(row, delta, shift)
    or (line > block and alike and not far.block % near.block)
  ):
    cuts, length = 1, run
  elif not far.row % far.block and not _off((run, *starts), far.block):
    cuts, length = run // far.block, far.block
  else:
    if line > block and alike:
      start, steps = 0, (block,)
    cuts = _cuts(run, start, steps, far, line > block and alike)
    length = 1
  whole = even and (line <= block or not row % block)
  return (1 if whole or line > block else 2) * cuts, length if whole else 1


def _cuts(
  run: int, start: int, steps: Sequence[int], far: _End, alike: bool = False
) -> int:
  """The maximum number of the other side's blocks that an interval spans.

  Args:
    run: elements of the interval.
    start, steps: intervals begin at `start` plus any multiples of `steps`.
    far: the other side.
    alike: rows of blocks begin and end together on both sides, so no interval
      crosses the end of the other side's rows.
  """
  ends, grid = 0, math.gcd(far.block, *steps)
  if not alike and far.row % far.block:
    grid = math.gcd(grid, far.row)
    if not _fits(run, start, (*steps, far.row)):
      ends, grid = (run - 1) // far.row + 1, 1
  # The fewest elements of a block that an interval may begin with.
  first = grid - start % grid
  return 1 - min((first - run) // far.block, 0) + ends


def _fits(size: int, start: int, steps: Sequence[int]) -> bool:
  """Whether intervals of `size` elements that begin at `start` plus any
  multiples of `steps` never cross a multiple of one of the steps."""
  grid = math.gcd(*steps)
  return start % grid + size <= grid


def _off(starts: Sequence[int], spacing: int) -> bool:
  """Whether any of `starts` is no multiple of `spacing`."""
  return any(x % spacing for x in starts)


class Blocks(NamedTuple):
  """The blocks of a mapping, in elements.

  Attributes:
    block: elements that are contiguous in the memory of a tile.
    row: elements after which blocks begin anew; the last block of a row may be
      short.
  """

  block: int
  row: int


def _padded(one: Layout, other: Layout, grain: int) -> tuple[Blocks, Blocks]:
  """The blocks of two mappings. Nothing follows the end of a tensor, so a block
  or row that ends there is rounded up to whole words and whole blocks."""
  found = [(contiguous(x), x.num_elements) for x in (one, other)]
  unit = math.lcm(max(grain, 1), *(b.block for b, n in found if b.block < n))
  first, second = (
    Blocks(*(x if x < n else -(-x // unit) * unit for x in b)) for b, n in found
  )
  return first, second


def contiguous(layout: Layout) -> Blocks:
  """The blocks of a mapping."""
  unit = 1
  for f in reversed(layout.factors):
    if f.parts > 1:
      return Blocks(f.block * unit, f.extent * unit)
    unit *= f.extent
  return Blocks(unit, unit)
