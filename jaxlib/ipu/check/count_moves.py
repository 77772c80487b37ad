"""Counts what a move makes tiles receive and send, element by element, to check
the closed forms of `moves/`.

The count is made faster in three ways:

- *Chunks.* Elements that are consecutive and on one tile, at both ends of the
  move, are counted together (check/moved_chunks.py).
- *Pairs.* Whether a chunk changes tile depends only on its sender and receiver,
  so what each pair of tiles exchanges is added up first, for the first replica
  of the destination. The other replicas need the same chunks.
- *Tiles.* If a move is too large, only what some tiles receive and send is
  counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxlib.ipu.check.moved_chunks import Chunks, Mask, alike, chunks_of
from jaxlib.ipu.layout import Array, Layout
from jaxlib.ipu.moves.affine import MoveEnd
from jaxlib.ipu.moves.distinct import overlapping


class ExactCounts(NamedTuple):
  """What a move makes tiles receive and send.

  Attributes:
    received, sent: elements that each tile receives and sends.
    segments: segments, contiguous in the memories of both tiles, that the
      fullest receiver receives.
    peers: tiles from which they come.
    leaving_segments: segments that the fullest sender sends. A segment to which
      several tiles listen counts once.
    arriving: contiguous destinations of the fullest receiver: intervals of its
      memory whose elements come from one tile.
    leaving: contiguous sources of the fullest sender: intervals of its memory
      whose elements go to the same tiles.
    even: whether contiguous destinations begin and end at words.
  """

  received: Array
  sent: Array
  segments: int
  peers: int
  leaving_segments: int
  arriving: int
  leaving: int
  even: bool


def counted(
  source: MoveEnd,
  destination: MoveEnd,
  shape: tuple[int, ...],
  grain: int,
  once: bool = True,
  tiles: Array | None = None,
) -> ExactCounts:
  """Counts a move.

  Args:
    source, destination, shape, once: see `traffic.traffic`. If an element that
      a tile needs in several places is sent once, it goes to the first of them.
    grain: elements in a word.
    tiles: tiles for which to count; None for all.
  """
  copies = Layout((), destination.layout.replicas).tiles()
  chosen = None
  if tiles is not None:
    last = max(source.layout.last_tile, destination.layout.last_tile)
    chosen = np.zeros(last + 1, np.bool_)
    chosen[tiles[tiles <= last]] = True
  chunks = chunks_of(source, destination, shape, chosen)
  several = not one_to_one(shape, source.strides)
  if several:
    chunks = alike(chunks)
  # Order by receiver, and by the receiver's storage order.
  chunks = chunks.part(_order(chunks.near, chunks.to))
  if several and once:
    elements = source.layout.num_elements
    each = chunks.near * elements + chunks.begin
    chunks = chunks.part(np.sort(np.unique(each, return_index=True)[1]))
  if not chunks.near.size:
    nothing = np.zeros(0, np.int64)
    return ExactCounts(nothing, nothing, 0, 0, 0, 0, 0, True)

  follows = _follow(chunks.near, chunks.to, chunks.length)
  follows &= chunks.sender[1:] == chunks.sender[:-1]
  new_interval = np.append(True, ~follows)
  new_segment = np.append(True, ~(follows & _adjoin(chunks.at, chunks.length)))
  starts = np.flatnonzero(new_interval)
  ends = np.append(starts[1:], len(new_interval)) - 1
  size = destination.layout.elements(chunks.near[starts])
  behind = chunks.to[ends] + chunks.length[ends]
  torn = (chunks.to[starts] % grain > 0) | (
    behind % grain * (behind < size) > 0
  )

  span = source.layout.last_tile + 1
  pairs, pair = np.unique(
    chunks.near[starts] * span + chunks.sender[starts], return_inverse=True
  )
  tile = pairs[:, None] // span + copies
  moves = _missing(tile - pairs[:, None] % span, source.layout)
  leaves = chunks.part(
    np.logical_or.reduce(moves, 1)[pair][np.cumsum(new_interval) - 1]
  )
  if chosen is not None:
    moves &= chosen[tile]
    leaves = leaves.part(chosen[leaves.sender])

  def arriving(counts: Array) -> Array:
    """Sums what each tile receives, given a number for each contiguous
    destination."""
    total = np.bincount(pair, counts)
    each = np.broadcast_to(total[:, None], tile.shape)[moves]
    return np.bincount(tile[moves], each).astype(np.int64)

  sent, leaving_segments, leaving = _leaving(leaves)
  return ExactCounts(
    arriving(np.add.reduceat(chunks.length, starts)),
    sent,
    _most(arriving(np.add.reduceat(new_segment.astype(np.int64), starts))),
    _most(np.bincount(tile[moves])),
    leaving_segments,
    _most(arriving(np.ones_like(starts))),
    leaving,
    not arriving(torn).any(),
  )


def _missing(apart: Array, source: Layout) -> Mask:
  """Whether a tile does not hold what a sender in the first replica of the
  source holds, given the difference of their tile numbers."""
  span = int(np.abs(apart).max(initial=0)) + source.last_tile
  held = np.zeros(2 * span + 1, np.bool_)
  held[span + Layout((), source.replicas).tiles()] = True
  return ~held[span + apart]


def _leaving(chunks: Chunks) -> tuple[Array, int, int]:
  """The elements that each tile sends; and the numbers of segments and
  contiguous sources of the fullest sender. Both are intervals of its memory
  whose elements go to the same tiles; those of a segment are also contiguous
  there. Takes the chunks in the order of the receivers."""
  if not chunks.near.size:
    return np.zeros(0, np.int64), 0, 0
  # Order by sender, and by the sender's storage order.
  chunks = chunks.part(_order(chunks.sender, chunks.at))
  segments = _intervals(chunks, chunks.near, chunks.to - chunks.at)
  # Drop chunks that go to another place of the same receiver.
  again = _same(chunks.sender, chunks.at, chunks.near)
  if again.any():
    chunks = chunks.part(np.append(True, ~again))
  first = chunks.part(np.append(True, ~_same(chunks.sender, chunks.at)))
  sent = np.bincount(first.sender, first.length).astype(np.int64)
  return sent, segments, _intervals(chunks, chunks.near)


def _intervals(chunks: Chunks, *goes: Array) -> int:
  """The maximum number of intervals of a sender's memory of which all elements
  go to the same destinations, as given by the arrays `goes`."""
  new = np.append(True, ~_same(chunks.sender, chunks.at))
  starts = np.flatnonzero(new)
  count = np.diff(starts, append=len(new))
  # Chunks of one place follow each other, one for each destination, and then
  # come those of the next place: compare both in order, if they are equally
  # many.
  there = np.arange(len(new)) + count[np.cumsum(new) - 1]
  there = np.minimum(there, len(new) - 1)
  other = np.any([x != x[there] for x in goes], 0)
  same = ~np.logical_or.reduceat(other, starts)[:-1]
  same &= count[1:] == count[:-1]
  sender, at, length = (
    x[starts] for x in (chunks.sender, chunks.at, chunks.length)
  )
  same &= _follow(sender, at, length)
  return _most(np.bincount(sender[np.append(True, ~same)]))


def _order(tile: Array, at: Array) -> Array:
  """The order of chunks by tile and by place in the tile's memory."""
  size = int(at.max(initial=0)) + 1
  return np.argsort(tile * size + at, kind="stable")


def _same(*of: Array) -> Mask:
  """For each entry but the first, whether it equals the one before it in all of
  the arrays."""
  return np.all([x[1:] == x[:-1] for x in of], 0)


def _adjoin(at: Array, length: Array) -> Mask:
  """For each chunk but the first, whether it begins where the one before
  ends."""
  return at[1:] == at[:-1] + length[:-1]


def _follow(tile: Array, at: Array, length: Array) -> Mask:
  """The same as `_adjoin`, on the same tile."""
  return _same(tile) & _adjoin(at, length)


def _most(counts: Array) -> int:
  """The count of the fullest tile."""
  return int(counts.max(initial=0))


def one_to_one(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
  """Whether a view has no element of its root more than once."""
  steps = [s for n, s in zip(shape, strides) if n > 1]
  return all(steps) and not overlapping(shape, strides)
