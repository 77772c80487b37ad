"""Counts the segments of a move, and the peers of its tiles.

A segment is contiguous in the memories of both its sender and its receiver, so
it can be one message. A tile's peers are the tiles at the other end that it
exchanges with. The library counts both for the fullest tile at either end, by
closed forms (runtime/moves/segments.h); the numbers are upper bounds for all
tiles.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from jaxlib.ipu.layout import Layout
from jaxlib.ipu.moves import native
from jaxlib.ipu.moves.affine import MoveEnd

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


@functools.lru_cache(maxsize=4096)
def count_segments(
  one: MoveEnd, other: MoveEnd, shape: tuple[int, ...], item_bytes: int
) -> tuple[SegmentCounts, SegmentCounts]:
  """The figures of both ends of a move, whichever of them sends."""
  first, second = native.segments(one, other, shape, item_bytes)
  return _counts(*first), _counts(*second)


def _counts(*figures: int) -> SegmentCounts:
  segments, peers, length, per_block, block, whole, elements, even = figures
  return SegmentCounts(
    segments, peers, length, per_block, block, bool(whole), elements, bool(even)
  )


def contiguous(layout: Layout) -> int:
  """The elements of a mapping's blocks that are contiguous in the memory of a
  tile."""
  unit = 1
  for f in reversed(layout.factors):
    if f.parts > 1:
      return f.block * unit
    unit *= f.extent
  return unit
